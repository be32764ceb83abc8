//! The parameters of a request, parsed as Go parses them.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The parameters of a query. Go: `Request.FormValue`.
pub(crate) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    pub(crate) fn of(uri: &'a http::Uri) -> Self {
        Self(uri.query().unwrap_or_default())
    }

    /// Returns the first value of a parameter; `None` if it is absent or empty. A pair with a semicolon or a broken
    /// escape is ignored.
    pub(crate) fn value(&self, name: &str) -> Option<Cow<'a, str>> {
        let pairs = self.0.split('&').filter(|pair| !pair.contains(';') && escapes_are_whole(pair));
        let mut parts = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let (_, value) = parts.find(|(key, _)| unescaped(key) == name)?;
        Some(unescaped(value)).filter(|value| !value.is_empty())
    }

    /// Returns the value as a number; anything but a number is 0. Go: `strconv.Atoi` with its error ignored, which
    /// returns the nearest number in place of one that is too large.
    pub(crate) fn number(&self, name: &str) -> i64 {
        self.value(name).map_or(0, |value| match integer(&value) {
            Ok(number) => number,
            Err(NotANumber::TooLarge(nearest)) => nearest,
            Err(NotANumber::Malformed) => 0,
        })
    }
}

/// Decodes a key or a value: `+` is a space, and `%` begins a byte in hexadecimal digits. Bytes that are not UTF-8 are
/// replaced.
fn unescaped(text: &str) -> Cow<'_, str> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return percent_decode_str(&spaced).decode_utf8_lossy().into_owned().into();
    }
    percent_decode_str(text).decode_utf8_lossy()
}

/// The reason why a text is no `i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotANumber {
    TooLarge(i64),
    Malformed,
}

/// Parses digits with an optional sign. Go: `strconv.ParseInt` to base 10.
pub(crate) fn integer(text: &str) -> Result<i64, NotANumber> {
    use std::num::IntErrorKind;
    text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => NotANumber::TooLarge(i64::MAX),
        IntErrorKind::NegOverflow => NotANumber::TooLarge(i64::MIN),
        _ => NotANumber::Malformed,
    })
}

/// Returns whether every `%` is followed by two hexadecimal digits. `percent_decode_str` would keep any other `%`
/// unchanged.
pub(crate) fn escapes_are_whole(text: &str) -> bool {
    let mut after = text.split('%').skip(1);
    after.all(|rest| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_go() {
        let cases = [
            ("a=1&b=2", "b", Some("2")),
            ("a=1&a=2", "a", Some("1")),
            ("a=&a=2", "a", None),
            ("a", "a", None),
            ("", "a", None),
            ("=1", "a", None),
            ("b=x%20y+z", "b", Some("x y z")),
            ("%61=1", "a", Some("1")),
            // Pairs that Go leaves out.
            ("a=1;b=2&b=3", "b", Some("3")),
            ("a=%zz&a=4", "a", Some("4")),
            ("a=%4&a=5", "a", Some("5")),
            ("a=1%", "a", None),
            ("A=1", "a", None),
            ("&&a=7&", "a", Some("7")),
            ("a==7", "a", Some("=7")),
        ];
        for (query, name, expected) in cases {
            assert_eq!(Query(query).value(name).as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn numbers_are_those_of_atoi() {
        let cases = [
            ("1", 1),
            ("-1", -1),
            ("%2B2", 2),
            ("x", 0),
            ("1x", 0),
            ("1.5", 0),
            ("0x10", 0),
            ("", 0),
            ("-", 0),
            ("%2B", 0),
            ("1_0", 0),
            (" 1", 0),
            ("99999999999999999999", i64::MAX),
            ("-99999999999999999999", i64::MIN),
        ];
        for (text, expected) in cases {
            assert_eq!(Query(&format!("debug={text}")).number("debug"), expected, "{text}");
        }
        assert_eq!(integer("9223372036854775808"), Err(NotANumber::TooLarge(i64::MAX)));
    }
}
