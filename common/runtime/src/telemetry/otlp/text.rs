//! Parses our own OpenMetrics text, so that metrics are counted once and exported in two formats.
//!
//! `prometheus-client` can also encode to structures, but generates them with a protobuf compiler during the build,
//! which costs every build more than this parser. It need not parse any other program's text.
//!
//! Not here: exemplars, timestamps, info and state sets.

use std::borrow::Cow;

/// Line of a series.
#[derive(Debug)]
pub(in crate::telemetry) struct Sample<'a> {
    /// Text after the family's name: `_total`, `_bucket`, or nothing.
    pub(super) suffix: &'a str,
    pub(in crate::telemetry) labels: Vec<(&'a str, Cow<'a, str>)>,
    pub(super) value: &'a str,
}

impl<'a> Sample<'a> {
    /// Parses a line of a family. Returns `None` if it is no sample.
    pub(in crate::telemetry) fn parse(line: &'a str, family: &str) -> Option<Self> {
        let rest = line.strip_prefix(family)?;
        let (suffix, mut rest) = rest.split_at(rest.find(['{', ' '])?);
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside.trim_start_matches(',');
            while !rest.starts_with('}') {
                let (name, after) = rest.split_once("=\"")?;
                let (value, after) = quoted(after)?;
                labels.push((name, value));
                rest = after.trim_start_matches(',');
            }
            rest = &rest[1..];
        }
        let value = rest.trim_start().split(' ').next().filter(|value| !value.is_empty())?;
        Some(Self { suffix, labels, value })
    }
}

/// Splits a label's value at its closing quote from the rest of the text.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut escaped = false;
    let mut escapes = false;
    let end = text.char_indices().find_map(|(at, c)| {
        if std::mem::take(&mut escaped) {
            return None;
        }
        escaped = c == '\\';
        escapes |= escaped;
        (c == '"').then_some(at)
    })?;
    let (inside, after) = (&text[..end], &text[end + 1..]);
    let unescaped = || inside.replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\");
    Some((if escapes { Cow::Owned(unescaped()) } else { Cow::Borrowed(inside) }, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_parsed_and_other_lines_are_not() {
        let bucket = Sample::parse("a_seconds_bucket{le=\"0.5\",x=\"1\"} 1", "a_seconds").expect("a sample");
        assert_eq!((bucket.suffix, bucket.value), ("_bucket", "1"));
        assert_eq!(bucket.labels, [("le", Cow::Borrowed("0.5")), ("x", Cow::Borrowed("1"))]);
        let total = Sample::parse("b_total 7", "b").expect("a sample");
        assert_eq!((total.suffix, total.value), ("_total", "7"));
        let escaped = Sample::parse("c{v=\"q\\\"}, \"} -1", "c").expect("a sample");
        assert_eq!((&*escaped.labels[0].1, escaped.value), ("q\"}, ", "-1"));
        for other in ["# UNIT c seconds", "c nonsense{", "# EOF", "d 1"] {
            assert!(Sample::parse(other, "c").is_none_or(|sample| sample.value == "nonsense{"), "{other}");
        }
    }
}
