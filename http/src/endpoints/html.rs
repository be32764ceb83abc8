//! Escaping of foreign text in a page.

/// Escapes the text of an element or a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Escapes JSON inside a `script` element, which would end at `</script` and hide the text after `<!--`.
pub(crate) fn script_safe(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Escapes the last part of a path in a link, where a slash would split the part.
pub(crate) fn path_part(text: &str) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    utf8_percent_encode(text, PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup() {
        assert_eq!(
            escaped("<a href=\"x\" id='y'>&</a>"),
            "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;&lt;/a&gt;"
        );
        assert_eq!(script_safe("\"</script><!--\""), "\"\\u003c/script>\\u003c!--\"");
        assert_eq!(path_part("app/open files?<x>%"), "app%2Fopen%20files%3F%3Cx%3E%25");
    }
}
