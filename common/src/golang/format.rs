//! Go's `strconv.Quote` (`%q`), used by Go programs to print names, and `html.EscapeString`.

use crate::text::is_unprintable;
use std::fmt::Write;

/// Quotes `bytes` in double quotes, with escapes for unprintable characters. Invalid UTF-8 becomes `\xNN`.
pub fn quote(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push(&mut out, c);
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}"); // Writing to a String cannot fail.
        }
    }
    out.push('"');
    out
}

/// Escapes HTML's five special characters like Go's `html.EscapeString`. Accepts bytes that are not valid UTF-8.
pub fn escape_html(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'"' => out.extend_from_slice(b"&#34;"),
            other => out.push(*other),
        }
    }
    out
}

fn push(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        c if c == ' ' || !(is_unprintable(c) || c.is_whitespace()) => out.push(c),
        c if (c as u32) < 0x80 => {
            let _ = write!(out, "\\x{:02x}", c as u32);
        }
        c if (c as u32) < 0x1_0000 => {
            let _ = write!(out, "\\u{:04x}", c as u32);
        }
        c => {
            let _ = write!(out, "\\U{:08x}", c as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_follows_go() {
        let rows: [(&[u8], &str); 6] = [
            (b"queue", "\"queue\""),
            (b"a\"b\\c", r#""a\"b\\c""#),
            (b"\t\x01\x7f", r#""\t\x01\x7f""#),
            (b"\xe9", r#""\xe9""#),
            ("é".as_bytes(), "\"é\""),
            ("\u{a0}".as_bytes(), r#""\u00a0""#),
        ];
        for (bytes, expected) in rows {
            assert_eq!(quote(bytes), expected);
        }
        assert_eq!(escape_html(b"<b>&'\""), b"&lt;b&gt;&amp;&#39;&#34;");
    }
}
