//! What a linker's name says beyond its demangled form: where the function stands.
//!
//! Demangled, `<alloc::string::String as core::convert::From<app::Id>>::from` looks like a function of the standard
//! library. It is the program's: only a crate that has the type or the trait, or here the trait's argument, may
//! implement it. The new mangling (RFC 2603) names the module of each `impl`, and demanglers leave it out. The old
//! mangling begins with the module, or with the type if the `impl` stands in the same module as the type.

/// Returns the crate in which a function stands; `None` if the name does not show it.
pub(crate) fn crate_of(mangled: &str) -> Option<&str> {
    match mangled.strip_prefix("_ZN") {
        Some(old) => {
            let (first, _) = identifier(old)?;
            let is_name = first.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            is_name.then_some(first)
        }
        None => Path::of(mangled)?.innermost_crate(),
    }
}

/// Returns the module of the `impl` in which a function of the new mangling stands: `app::ids` for
/// `<alloc::string::String as core::convert::From<app::ids::Id>>::from`.
pub(crate) fn module_of_impl(mangled: &str) -> Option<String> {
    let mut path = Path::of(mangled)?;
    loop {
        match path.step()? {
            Step::Impl => return path.plain(MOST_NAMES),
            Step::Crate(_) => return None,
            Step::Further => {}
        }
    }
}

/// The most names in the path of a module: a damaged file may nest them without end.
const MOST_NAMES: u32 = 64;

/// A path in the new mangling, read from its outermost tag inwards.
#[derive(Clone, Copy)]
struct Path<'a> {
    /// All after `_R`: references count from there.
    text: &'a str,
    at: usize,
}

enum Step<'a> {
    /// The path goes on.
    Further,
    /// The path of an `impl` follows.
    Impl,
    Crate(&'a str),
}

impl<'a> Path<'a> {
    fn of(mangled: &'a str) -> Option<Self> {
        mangled.strip_prefix("_R").map(|text| Self { text, at: 0 })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Reads the outermost tag.
    fn step(&mut self) -> Option<Step<'a>> {
        let tag = *self.rest().as_bytes().first()?;
        let begin = self.at;
        self.at += 1;
        match tag {
            b'C' => {
                self.skip_disambiguator()?;
                identifier(self.rest()).map(|(name, _)| Step::Crate(name))
            }
            // A namespace follows.
            b'N' => {
                self.rest().bytes().next().filter(u8::is_ascii_alphabetic)?;
                self.at += 1;
                Some(Step::Further)
            }
            b'I' => Some(Step::Further),
            b'M' | b'X' => {
                self.skip_disambiguator()?;
                Some(Step::Impl)
            }
            b'B' => {
                let (target, _) = number(self.rest())?;
                // A reference points back, or the walk might not end.
                self.at = usize::try_from(target).ok().filter(|target| *target < begin)?;
                Some(Step::Further)
            }
            // A function of a trait (`Y`): the type, which comes first, would have to be skipped.
            _ => None,
        }
    }

    fn innermost_crate(mut self) -> Option<&'a str> {
        loop {
            if let Step::Crate(name) = self.step()? {
                return Some(name);
            }
        }
    }

    /// Reads a path of names alone, with at most `limit` of them.
    fn plain(&mut self, limit: u32) -> Option<String> {
        let limit = limit.checked_sub(1)?;
        let begin = self.at;
        let tag = *self.rest().as_bytes().first()?;
        match self.step()? {
            Step::Crate(name) => {
                self.identifier()?;
                Some(name.to_owned())
            }
            Step::Further if tag == b'N' => {
                let mut path = self.plain(limit)?;
                self.skip_disambiguator()?;
                // A closure has no name.
                let name = self.identifier()?;
                if !name.is_empty() {
                    path.push_str("::");
                    path.push_str(name);
                }
                Some(path)
            }
            Step::Further if tag == b'B' => {
                let path = self.plain(limit)?;
                let (_, len) = number(&self.text[begin + 1..])?;
                self.at = begin + 1 + len;
                Some(path)
            }
            _ => None,
        }
    }

    fn identifier(&mut self) -> Option<&'a str> {
        let (name, len) = identifier(self.rest())?;
        self.at += len;
        Some(name)
    }

    fn skip_disambiguator(&mut self) -> Option<()> {
        if self.rest().starts_with('s') {
            let (_, len) = number(&self.rest()[1..])?;
            self.at += 1 + len;
        }
        Some(())
    }
}

/// Reads an identifier with its length before it. Returns it, and the length of both.
fn identifier(text: &str) -> Option<(&str, usize)> {
    // `u`: the identifier is in Punycode.
    let digits_from = usize::from(text.starts_with('u'));
    let digits = text[digits_from..].bytes().take_while(u8::is_ascii_digit).count();
    let len: usize = text[digits_from..digits_from + digits].parse().ok()?;
    let mut from = digits_from + digits;
    // An underscore separates the length from a name that begins with a digit or an underscore. The old mangling has no
    // separator; the names that would be misread there are those of no crate of the standard library.
    from += usize::from(text[from..].starts_with('_'));
    let end = from.checked_add(len)?;
    Some((text.get(from..end)?, end))
}

/// Reads a number in base 62, `_` for 0. Returns it, and its length.
fn number(text: &str) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (at, byte) in text.bytes().enumerate() {
        let digit = match byte {
            b'_' if at == 0 => return Some((0, 1)),
            b'_' => return Some((value.checked_add(1)?, at + 1)),
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'z' => byte - b'a' + 10,
            b'A'..=b'Z' => byte - b'A' + 36,
            _ => return None,
        };
        value = value.checked_mul(62)?.checked_add(u64::from(digit))?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crate_of_a_function() {
        for (mangled, krate) in [
            ("_RNvCs1234_3app4main", Some("app")),
            ("_RNvMs_NtCs8_5alloc3vecINtB4_3VechE4push", Some("alloc")),
            (
                "_RNvXs_NtCs1_3app3idsNtNtCs8_5alloc6string6StringINtNtCs2_4core7convert4FromNtB4_2IdE4from",
                Some("app"),
            ),
            ("_RNCNvXs_NtCs1_3app3idsNtNtCs8_5alloc6string6StringNtB4_3Ext1f0", Some("app")),
            ("_RINvNtCs2_4core3ptr13drop_in_placeNtCs1_3app7SessionE", Some("core")),
            // A method that the trait provides.
            ("_RNvYNtCs1_3app1ANtB4_1B1f", None),
            ("_RNvC6_123foo3bar", Some("123foo")),
            ("_ZN5alloc7raw_vec19RawVec$LT$T$C$A$GT$8grow_one17h0123456789abcdefE", Some("alloc")),
            (
                "_ZN3app3ids98_$LT$impl$u20$core..convert..From$LT$app..ids..Id$GT$4from17h0123456789abcdefE",
                Some("app"),
            ),
            ("_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0123456789abcdefE", Some("core")),
            (
                "_ZN60_$LT$alloc..string..String$u20$as$u20$core..fmt..Display$GT$3fmt17h0123456789abcdefE",
                None,
            ),
            ("memcpy", None),
            ("_R", None),
            ("_RNv", None),
            ("_RB_", None),
            ("_RNvB0_", None),
            ("_RNvC99999999999999999999a", None),
            ("_RNvC9é", None),
            ("_ZN", None),
        ] {
            assert_eq!(crate_of(mangled), krate, "{mangled}");
        }
    }

    #[test]
    fn the_module_of_an_impl() {
        for (mangled, module) in [
            (
                "_RNvXs_NtCs1_3app3idsNtNtCs8_5alloc6string6StringINtNtCs2_4core7convert4FromNtB4_2IdE4from",
                Some("app::ids"),
            ),
            (
                "_RNCNvXs_NtNtCs1_3app3ids4deepNtNtCs8_5alloc6string6StringNtB4_3Ext1f0",
                Some("app::ids::deep"),
            ),
            ("_RNvXCs1_3apphNtB2_1T1f", Some("app")),
            // The path of the impl refers to the module of the function in whose instance it stands.
            ("_RINvNtCs1_3app3ids1fNvXB4_hNtB2_1T1fE", None),
            ("_RNvCs1234_3app4main", None),
            ("_RNvX", None),
        ] {
            assert_eq!(module_of_impl(mangled).as_deref(), module, "{mangled}");
        }
        let nested = format!("_RNvX{}C1a", "Nt".repeat(100_000));
        assert_eq!(module_of_impl(&nested), None);
    }

    #[test]
    fn references_are_followed() {
        // The first path is the type argument of nothing: only the second is read, and refers to it.
        let text = "_RNvXNtB5_3idshNtB5_1T1f";
        assert_eq!(module_of_impl(text), None, "it refers to itself");
        let mut path = Path { text: "NtC3app3idsNtB1_4deep", at: 11 };
        assert_eq!(path.plain(MOST_NAMES).as_deref(), Some("app::deep"));
        assert_eq!(path.rest(), "");
    }
}
