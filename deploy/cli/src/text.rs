//! Tables, colours and human-readable numbers.

use clap::builder::styling::{AnsiColor, Style};
use common::text::printable_line;
use k8s_openapi::jiff::Timestamp;
use std::io::IsTerminal;

/// Style of ordinary text.
pub const PLAIN: Style = Style::new();
/// Style of a table head or a name.
pub const STRONG: Style = Style::new().bold();
/// Style of what runs well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Style of what is in transition.
pub const BUSY: Style = AnsiColor::Yellow.on_default();
/// Style of what is at rest, or less important.
pub const FAINT: Style = Style::new().dimmed();
/// Style of what is wrong.
pub const BAD: Style = AnsiColor::Red.on_default();

/// Colour setting: true enables colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Colours(pub bool);

impl Colours {
    /// Enables colours if standard output is a terminal, unless `NO_COLOR` or `TERM` forbid it.
    pub fn of_output() -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|value| value == "dumb");
        Self(std::io::stdout().is_terminal() && !no_colour && !dumb)
    }

    /// Wraps `text` in the escape codes of a style.
    pub fn paint(self, style: Style, text: &str) -> String {
        if self.0 && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// Prints a warning in one line; control characters in it are escaped.
pub fn warn(warning: &str) {
    eprintln!("warning: {}", printable_line(warning));
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Text.
    pub text: String,
    /// Style.
    pub style: Style,
}

impl Cell {
    /// Builds a cell; control characters in the text are escaped.
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: printable_line(&text.into()).into_owned(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, PLAIN)
    }
}

/// Formats rows below their heads. Each column is as wide as its widest cell; the last column is cut at the terminal's
/// edge, if there is one.
pub fn table(heads: &[&str], rows: &[Vec<Cell>], colours: Colours, width: Option<usize>) -> String {
    let heads: Vec<Cell> = heads.iter().map(|head| Cell::new(*head, STRONG)).collect();
    let lines = || std::iter::once(&heads).chain(rows);
    let length = |cell: &Cell| cell.text.chars().count();
    let widest = |column: usize| lines().map(|line| length(&line[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(|column| widest(column) + 3).collect();
    let mut out = String::new();
    for line in lines() {
        let Some((last, padded)) = line.split_last() else { continue };
        let mut used = 0;
        for (cell, width) in padded.iter().zip(&widths) {
            out += &colours.paint(cell.style, &cell.text);
            out += &" ".repeat(width - length(cell));
            used += width;
        }
        let text = width.map(|width| cut(&last.text, width.saturating_sub(used).max(8)));
        out += &colours.paint(last.style, text.as_ref().unwrap_or(&last.text));
        out.push('\n');
    }
    out
}

/// Truncates a text to at most `max` characters.
fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max { text.to_owned() } else { text.chars().take(max - 1).chain(['…']).collect() }
}

/// Formats a duration: `19.0 ms`, `2.35 s`, `3m20s`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 60.0 => format!("{s:.2} s"),
        s => age(s as i64),
    }
}

/// Formats an age as kubectl does. The second unit is shown only if the first is below 10.
pub fn age(seconds: i64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let seconds = seconds.max(0);
    let Some(first) = units.iter().position(|(_, size)| seconds >= *size) else { return "0s".to_owned() };
    let (unit, size) = units[first];
    let (count, rest) = (seconds / size, seconds % size);
    match units.get(first + 1).filter(|_| count < 10) {
        Some((smaller, of)) if rest / of > 0 => format!("{count}{unit}{}{smaller}", rest / of),
        _ => format!("{count}{unit}"),
    }
}

/// Formats the time since `then`.
pub fn since(then: Timestamp, now: Timestamp) -> String {
    age(now.as_second() - then.as_second())
}

/// Formats a count with its noun: `1 replica`, `3 replicas`.
pub fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Formats a number with few digits; `-` if it is unknown.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() < 0.05 => "0".to_owned(), // No -0.
        Some(value) if value.abs() < 10.0 && value.fract() != 0.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// Returns the width of the terminal, or `None` if standard output is not a terminal.
pub fn width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_are_short() {
        let ages = [
            (0, "0s"),
            (-5, "0s"),
            (59, "59s"),
            (60, "1m"),
            (95, "1m35s"),
            (660, "11m"),
            (7500, "2h5m"),
            (40 * 3600, "1d16h"),
            (864_000, "10d"),
        ];
        for (seconds, expected) in ages {
            assert_eq!(age(seconds), expected, "{seconds}");
        }
        for (value, expected) in [(0.019, "19.0 ms"), (0.0004, "0.4 ms"), (2.345, "2.35 s"), (200.0, "3m20s")] {
            assert_eq!(seconds(value), expected);
        }
        for (value, expected) in
            [(None, "-"), (Some(0.0), "0"), (Some(0.25), "0.2"), (Some(3.0), "3"), (Some(123.4), "123")]
        {
            assert_eq!(number(value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells_and_ends_at_the_edge() {
        let rows = vec![
            vec!["a".into(), Cell::new("Awake", GOOD), "a long reason".into()],
            vec!["longer".into(), "-".into(), "".into()],
        ];
        assert_eq!(
            table(&["NAME", "STATE", "WHY"], &rows, Colours(false), None),
            "NAME     STATE   WHY\na        Awake   a long reason\nlonger   -       \n"
        );
        let narrow = table(&["NAME", "STATE", "WHY"], &rows, Colours(true), Some(26));
        assert!(narrow.contains("\u{1b}[32mAwake\u{1b}[0m   a long r…"), "{narrow:?}");
        assert!(narrow.starts_with("\u{1b}[1mNAME\u{1b}[0m"), "{narrow:?}");
    }

    #[test]
    fn control_characters_in_a_cell_are_escaped() {
        assert_eq!(Cell::from("a\u{1b}[2Jb\r\nc").text, "a\\u{1b}[2Jb  c");
    }
}
