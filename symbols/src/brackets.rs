//! The structure of demangled names, which their brackets show: `<Type as Trait>::method::<Argument>`.
//!
//! Not every `<` and `>` is a bracket. Constants of the types `char` and `str` may contain them, as in
//! `app::Separated<'>'>`, and the arrow of a function type ends with one: `fn(u8) -> u8`, or `fn(u8) .> u8` in the old
//! mangling, which has no character for the dash.

/// A bracket, colon or space of a name, outside of the constants' text.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    pub(crate) at: usize,
    pub(crate) byte: u8,
    /// How many brackets of any kind are open around it. Both brackets of a pair are outside of the pair.
    pub(crate) depth: u32,
}

/// Returns the brackets, colons and spaces of a name, without those in the text of constants.
pub(crate) fn spots(name: &str) -> impl Iterator<Item = Spot> + use<'_> {
    Spots { name: name.as_bytes(), at: 0, depth: 0 }
}

struct Spots<'a> {
    name: &'a [u8],
    at: usize,
    depth: u32,
}

impl Iterator for Spots<'_> {
    type Item = Spot;

    fn next(&mut self) -> Option<Spot> {
        let (at, byte) = loop {
            let at = self.at + self.name[self.at..].iter().position(|&byte| is_mark(byte))?;
            let byte = self.name[at];
            if !matches!(byte, b'\'' | b'"') {
                break (at, byte);
            }
            self.at = at + constant(&self.name[at..]).unwrap_or(1);
        };
        self.at = at + 1;
        let mut depth = self.depth;
        match byte {
            b'<' | b'(' | b'[' | b'{' => self.depth += 1,
            b'>' if is_arrow(&self.name[..at]) => {}
            b'>' | b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                self.depth = depth;
            }
            _ => {}
        }
        Some(Spot { at, byte, depth })
    }
}

/// Whether a byte may be a spot or begin a constant. Most bytes of a name are neither: names are read several times, and
/// a loop without more than this test in it is several times as fast.
fn is_mark(byte: u8) -> bool {
    matches!(byte, b'<' | b'>' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b':' | b' ' | b'\'' | b'"')
}

/// Whether `>` after this text ends an arrow. A constant that ends with a dash or a dot ends with a quote after it.
fn is_arrow(before: &[u8]) -> bool {
    before.ends_with(b"-") || before.ends_with(b" .")
}

/// Returns the length of the text in quotes with which `name` begins. The quote of a lifetime, as in `&'a u8`, begins
/// no such text.
fn constant(name: &[u8]) -> Option<usize> {
    let (&quote, inner) = name.split_first()?;
    let len = match (quote, inner) {
        (b'\'', [b'\\', _, rest @ ..]) => 2 + rest.iter().position(|&byte| byte == b'\'')?,
        (b'\'', [first, ..]) => {
            let len = first.leading_ones().max(1) as usize;
            (inner.get(len) == Some(&b'\'')).then_some(len)?
        }
        (b'"', _) => {
            let mut escaped = false;
            inner.iter().position(|&byte| {
                let ends = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                ends
            })?
        }
        _ => return None,
    };
    Some(len + 2)
}

/// The parts of `<kind as of_trait>rest`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Qualified<'a> {
    pub(crate) kind: &'a str,
    pub(crate) of_trait: Option<&'a str>,
    pub(crate) rest: &'a str,
}

impl<'a> Qualified<'a> {
    /// Takes a name apart; `None` if it does not begin with `<`, or if that is not closed.
    pub(crate) fn of(name: &'a str) -> Option<Self> {
        if !name.starts_with('<') {
            return None;
        }
        let mut end_of_kind = None;
        let end = spots(name).find_map(|Spot { at, byte, depth }| {
            if byte == b' ' && depth == 1 && end_of_kind.is_none() && name[at..].starts_with(" as ") {
                end_of_kind = Some(at);
            }
            (byte == b'>' && depth == 0).then_some(at)
        })?;
        Some(Self {
            kind: &name[1..end_of_kind.unwrap_or(end)],
            of_trait: end_of_kind.map(|at| &name[at + " as ".len()..end]),
            rest: &name[end + 1..],
        })
    }
}

/// Returns the last segment of a path, without type arguments: `new` of `<alloc::boxed::Box<a::B>>::new::<c::D>`.
pub(crate) fn last_segment(name: &str) -> Option<&str> {
    let mut last = None;
    let mut from = None;
    let outside = spots(name).filter(|spot| spot.depth == 0).map(|spot| (spot.at, spot.byte));
    for (at, byte) in outside.chain([(name.len(), b'<')]) {
        let begins = byte == b':' && name[..at].ends_with(':');
        let ends = byte == b'<' || byte == b':';
        if ends && let Some(text) = from.take().map(|from| &name[from..at]).filter(|text| !text.is_empty()) {
            last = Some(text);
        }
        if begins {
            from = Some(at + 1);
        }
    }
    last
}

/// Returns a path without the text in angle brackets and the colons before it, and whether all brackets were closed. If
/// not, the path ends before the first that is open.
pub(crate) fn without_arguments(path: &str) -> (String, bool) {
    let mut short = String::with_capacity(path.len());
    let mut from = 0;
    // The depth of the bracket whose content is left out.
    let mut inside = None;
    for Spot { at, byte, depth } in spots(path) {
        match (byte, inside) {
            (b'<', None) => {
                let kept = &path[from..at];
                short.push_str(kept.strip_suffix("::").unwrap_or(kept));
                inside = Some(depth);
            }
            (b'>', Some(of)) if of == depth => {
                inside = None;
                from = at + 1;
            }
            _ => {}
        }
    }
    if inside.is_none() {
        short.push_str(&path[from..]);
    }
    (short, inside.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_and_arrows_are_no_brackets() {
        for name in [
            "<app::Separated<'>'> as app::Parse>::parse",
            r"<app::Separated<'\''> as app::Parse>::parse",
            r"<app::Separated<'\u{1f468}'> as app::Parse>::parse",
            "<app::Separated<'é'> as app::Parse>::parse",
            r#"<app::Named<"a\"<b"> as app::Parse>::parse"#,
            r#"<app::Named<"\\"> as app::Parse>::parse"#,
            "<app::Two<'<', 'x', '-'> as app::Parse>::parse",
            "<fn(u8) -> u8 as app::Parse>::parse",
            "<fn(u8) .> u8 as app::Parse>::parse",
            "<&'a app::Borrowed<'b, 'c> as app::Parse>::parse",
            "<dyn for<'a> app::Reads<'a> as app::Parse>::parse",
        ] {
            let parts = Qualified::of(name).expect(name);
            assert_eq!((parts.of_trait, parts.rest), (Some("app::Parse"), "::parse"), "{name}");
            assert_eq!(last_segment(name), Some("parse"), "{name}");
        }
    }

    #[test]
    fn the_last_segment() {
        for (name, segment) in [
            ("<alloc::boxed::Box<a::B>>::new::<c::D>", Some("new")),
            ("a::b", Some("b")),
            ("a::b::{closure#0}", Some("{closure#0}")),
            ("a::b::<c::D>::{shim:vtable#0}", Some("{shim:vtable#0}")),
            ("core::slice::<impl [T]>::sort", Some("sort")),
            ("memcpy", None),
            ("<a::B>", None),
            ("", None),
        ] {
            assert_eq!(last_segment(name), segment, "{name}");
        }
    }

    #[test]
    fn unfinished_names_end_before_what_is_open() {
        assert_eq!(without_arguments("a::b::<c>::d::<e::<f"), ("a::b::d".to_owned(), false));
        assert_eq!(without_arguments("a::b<c>"), ("a::b".to_owned(), true));
        assert!(Qualified::of("<a as b").is_none());
    }
}
