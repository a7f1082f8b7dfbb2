//! Parses our own OpenMetrics text, as [`super::super::Metrics::encode`] writes it, so that metrics are counted once
//! and exported in two formats.
//!
//! `prometheus-client` can also encode to structures, but generates them with a protobuf compiler during the build,
//! which costs every build more than this parser. It need not parse any other program's text.
//!
//! Not here: exemplars, timestamps, info and state sets.

use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::telemetry) enum Type {
    Counter,
    Gauge,
    Histogram,
    Other,
}

impl Type {
    /// Returns the word for the type in the text.
    pub(in crate::telemetry) fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Other => "metric of another kind",
        }
    }
}

/// Series of one name.
#[derive(Debug)]
pub(in crate::telemetry) struct Family<'a> {
    pub(in crate::telemetry) name: &'a str,
    pub(in crate::telemetry) help: &'a str,
    pub(in crate::telemetry) kind: Type,
    pub(in crate::telemetry) samples: Vec<Sample<'a>>,
}

#[derive(Debug)]
pub(in crate::telemetry) struct Sample<'a> {
    /// Text after the family's name: `_total`, `_bucket`, or nothing.
    pub(in crate::telemetry) suffix: &'a str,
    pub(in crate::telemetry) labels: Vec<(&'a str, Cow<'a, str>)>,
    pub(in crate::telemetry) value: &'a str,
}

/// Returns every family, in order. Lines that cannot be parsed are skipped.
pub(in crate::telemetry) fn families(text: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let mut help = ("", "");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap_or((rest, ""));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            let kind = match kind {
                "counter" => Type::Counter,
                "gauge" => Type::Gauge,
                "histogram" => Type::Histogram,
                _ => Type::Other,
            };
            let help = if help.0 == name { help.1.trim_end_matches('.') } else { "" };
            families.push(Family { name, help, kind, samples: Vec::new() });
        } else if !line.starts_with('#')
            && let Some(family) = families.last_mut()
            && let Some(sample) = sample(line, family.name)
        {
            family.samples.push(sample);
        }
    }
    families
}

fn sample<'a>(line: &'a str, family: &str) -> Option<Sample<'a>> {
    let rest = line.strip_prefix(family)?;
    let end = rest.find(['{', ' '])?;
    let (suffix, mut rest) = rest.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches(',');
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (name, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((name, value));
            rest = after;
        }
    }
    let value = rest.trim_start().split(' ').next().filter(|value| !value.is_empty())?;
    Some(Sample { suffix, labels, value })
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
    let value = match escapes {
        true => Cow::Owned(inside.replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\")),
        false => Cow::Borrowed(inside),
    };
    Some((value, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_apart() {
        let text = "# HELP a_seconds How long.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\n\
            a_seconds_sum{x=\"1\"} 2.5\na_seconds_count{x=\"1\"} 3\na_seconds_bucket{le=\"0.5\",x=\"1\"} 1\n\
            # TYPE b counter\nb_total 7\n# TYPE c gauge\nc{v=\"q\\\"}, \"} -1\nc nonsense{\n# EOF\n";
        let families = families(text);
        let [a, b, c] = &families[..] else { panic!("{families:?}") };
        assert_eq!((a.name, a.help, a.kind, a.samples.len()), ("a_seconds", "How long", Type::Histogram, 3));
        assert_eq!(a.samples[2].suffix, "_bucket");
        assert_eq!(a.samples[2].labels, [("le", Cow::Borrowed("0.5")), ("x", Cow::Borrowed("1"))]);
        assert_eq!((b.samples[0].suffix, b.samples[0].value), ("_total", "7"));
        assert_eq!((&*c.samples[0].labels[0].1, c.samples[0].value), ("q\"}, ", "-1"));
    }
}
