//! Makes text from other parties safe to print in a terminal, a log, a condition, a response or a page.
//!
//! Control characters move a terminal's cursor. Bidirectional controls and invisible characters make a name look like
//! another name (CVE-2021-42574). Such characters are replaced by an escape such as `\u{202e}`, which has no effect.

use std::borrow::Cow;

/// Reports whether a character has an effect other than being displayed. These are controls, line and paragraph
/// separators, and format characters that reorder or hide text. Joiners of emoji and of Indic scripts are harmless but
/// invisible, so they count too.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Returns text that fits on one line: tabs and line breaks become spaces, other unprintable characters become escapes.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    replaced(text, is_unprintable, |c, out| match c {
        '\t' | '\n' | '\r' | '\u{2028}' | '\u{2029}' => out.push(' '),
        c => out.extend(c.escape_unicode()),
    })
}

/// Escapes the unprintable characters of a document such as JSON, log lines or a coloured table, except ASCII control
/// characters other than DEL. In a JSON string the escape is valid, because its backslash is escaped, too.
pub fn printable_document(text: &str) -> Cow<'_, str> {
    let is_replaced = |c: char| is_unprintable(c) && !(c.is_ascii() && c != '\u{7f}');
    replaced(text, is_replaced, |c, out| {
        out.push('\\');
        out.extend(c.escape_unicode());
    })
}

/// Joins the words of a text into one line of at most `length_max` characters.
pub fn excerpt(text: &str, length_max: usize) -> String {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_ascii_control()).collect();
    let line = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let line = printable_line(&line);
    match line.char_indices().nth(length_max) {
        None => line.into_owned(),
        Some(_) => line.chars().take(length_max - 1).chain(['…']).collect(),
    }
}

fn replaced(text: &str, is_replaced: impl Fn(char) -> bool, replace: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let Some((first, _)) = text.char_indices().find(|(_, c)| is_replaced(*c)) else { return text.into() };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..first]);
    for c in text[first..].chars() {
        if is_replaced(c) { replace(c, &mut out) } else { out.push(c) }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_characters_are_escaped_and_an_excerpt_is_one_line_of_bounded_length() {
        let rows = [
            ("plain, ünïcödé 漢字 👍", "plain, ünïcödé 漢字 👍"),
            ("two\nlines\t\r", "two lines  "),
            ("\u{1b}[31mred\u{7f}\u{9b}", "\\u{1b}[31mred\\u{7f}\\u{9b}"),
            ("a\u{202e}txt.exe\u{2066}b\u{200b}c", "a\\u{202e}txt.exe\\u{2066}b\\u{200b}c"),
            ("\u{e0041}\u{feff}", "\\u{e0041}\\u{feff}"),
        ];
        for (text, expected) in rows {
            assert_eq!(printable_line(text), expected);
            assert!(!printable_line(text).chars().any(is_unprintable), "{text:?}");
        }
        assert_eq!(printable_document("{\"a\":\"\u{202e}\"}\n"), "{\"a\":\"\\\\u{202e}\"}\n");
        assert_eq!(printable_document("\u{1b}[1mbold\u{1b}[0m"), "\u{1b}[1mbold\u{1b}[0m");
        let rows = [(" a \n\n b\u{7}c ", 20, "a b c"), ("abcdef", 6, "abcdef"), ("abcdefg", 6, "abcde…")];
        for (text, length_max, expected) in rows {
            assert_eq!(excerpt(text, length_max), expected);
        }
        assert_eq!(excerpt("a\u{202e}b", 20), "a\\u{202e}b");
    }
}
