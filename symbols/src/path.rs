//! What the path of a function says: its crate.

/// Whether `name` is a function of this crate, or a method of one of its types.
pub fn in_crate(name: &str, krate: &str) -> bool {
    name.trim_start_matches(['<', '&']).strip_prefix(krate).is_some_and(|rest| rest.starts_with("::"))
}

/// Whether this is a path of at least two segments.
pub(crate) fn is_in_a_crate(path: &str) -> bool {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    end > 0 && path[end..].starts_with("::")
}
