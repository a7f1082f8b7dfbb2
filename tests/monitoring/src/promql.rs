//! Names in PromQL queries that must exist: metrics, labels and label values.
//!
//! This is not a parser: `promtool` checks that queries are valid. In a valid query, a name before `{` or `[`, or
//! alone, is a metric. A name before `(` is a function. Names in parentheses after `by`, `on` and similar words are
//! labels.

use common_runtime::telemetry::Instrument;
use common_runtime::telemetry::catalog::ALL;
use common_runtime::telemetry::instrument::{Kind, label};

/// Metrics that Prometheus itself adds.
const PROMETHEUS: [&str; 2] = ["up", "ALERTS"];
/// Labels that Prometheus or a scrape configuration adds.
const TARGETS: [&str; 5] = ["job", "instance", "namespace", "pod", "le"];
const OPERATORS: [&str; 7] = ["and", "or", "unless", "bool", "offset", "inf", "nan"];
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// Selector of one metric in a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Selector {
    metric: String,
    /// Label, operator and value of each matcher.
    matchers: Vec<(String, String, String)>,
}

/// Returns the names in a query that do not exist: metrics, labels, and values that a label never has. The result is
/// empty if all names exist.
pub fn unknown_names(query: &str) -> Vec<String> {
    let (selectors, groupings) = names(query);
    let mut unknown = Vec::new();
    let mut labels: Vec<String> = TARGETS.map(str::to_owned).to_vec();
    for Selector { metric, matchers } in &selectors {
        if PROMETHEUS.contains(&metric.as_str()) {
            continue;
        }
        let Some(instrument) = instrument(metric) else {
            unknown.push(format!("{metric} is not listed"));
            continue;
        };
        let own: Vec<String> = instrument.attributes.iter().map(|attribute| label(attribute)).collect();
        for (name, operator, value) in matchers {
            if !own.contains(name) && !TARGETS.contains(&name.as_str()) {
                unknown.push(format!("{metric}: {name}"));
            }
            let is_last = own.last() == Some(name);
            let is_value = |word: &str| instrument.values.iter().any(|(known, _)| *known == word);
            let words = if operator.ends_with('~') { value.split('|').collect() } else { vec![value.as_str()] };
            if is_last && !instrument.values.is_empty() && !value.contains('$') {
                let never = words.into_iter().filter(|word| !is_value(word));
                unknown.extend(never.map(|word| format!("{metric}: {name} is never {word}")));
            }
        }
        labels.extend(own);
    }
    unknown.extend(groupings.into_iter().filter(|name| !labels.contains(name)).map(|name| format!("by {name}")));
    unknown
}

/// Returns the instrument whose series have this name.
fn instrument(metric: &str) -> Option<&'static Instrument> {
    ALL.iter().find(|instrument| {
        let name = instrument.prometheus();
        match instrument.kind {
            Kind::Histogram => ["_bucket", "_sum", "_count"].iter().any(|end| metric.strip_suffix(end) == Some(&name)),
            _ => metric == name,
        }
    })
}

/// Returns the selectors of a query, and the labels by which it groups.
fn names(query: &str) -> (Vec<Selector>, Vec<String>) {
    let (mut selectors, mut groupings) = (Vec::new(), Vec::new());
    let mut rest = query;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_alphabetic() || first == '_' {
            let (word, after) = word(rest);
            let next = after.trim_start();
            rest = after;
            if GROUPINGS.contains(&word) {
                if let Some((inside, after)) = next.strip_prefix('(').and_then(|inside| inside.split_once(')')) {
                    groupings.extend(inside.split(',').map(|name| name.trim().to_owned()).filter(|n| !n.is_empty()));
                    rest = after;
                }
            } else if let Some(inside) = next.strip_prefix('{') {
                let (matchers, after) = matchers(inside);
                selectors.push(Selector { metric: word.to_owned(), matchers });
                rest = after;
            } else {
                let follows = self::word(next).0;
                let is_function = next.starts_with('(') || ["by", "without"].contains(&follows);
                if !is_function && !OPERATORS.contains(&word) {
                    selectors.push(Selector { metric: word.to_owned(), matchers: Vec::new() });
                }
            }
        } else if first == '[' {
            rest = rest.split_once(']').map_or("", |(_, after)| after);
        } else if first == '"' {
            rest = quoted(rest).1;
        } else if first.is_ascii_digit() {
            // A number, or a duration such as 5m.
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    (selectors, groupings)
}

fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    text.split_at(end)
}

/// Parses matchers up to the closing brace, and also returns the text after it.
fn matchers(mut text: &str) -> (Vec<(String, String, String)>, &str) {
    let mut all = Vec::new();
    loop {
        text = text.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if text.is_empty() || text.starts_with('}') {
            return (all, text.get(1..).unwrap_or_default());
        }
        let (name, after) = word(text);
        let end = after.find('"').unwrap_or(after.len());
        let (operator, after) = after.split_at(end);
        let (value, after) = quoted(after);
        all.push((name.to_owned(), operator.trim().to_owned(), value.to_owned()));
        text = after;
    }
}

/// Returns the text between the quotes with which `text` begins, and the text after them.
fn quoted(text: &str) -> (&str, &str) {
    let inside = text.get(1..).unwrap_or_default();
    let mut escaped = false;
    let end = inside.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or((inside, ""), |end| (&inside[..end], &inside[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_reported() {
        let rows: [(&str, &[&str]); 9] = [
            ("sum by (reason) (rate(zeroscale_refused_total{reason=~\"pod|memory\"}[5m])) > 0.5", &[]),
            ("histogram_quantile(0.95, sum by (le) (rate(zeroscale_held_seconds_bucket{job=\"a)\"}[5m]))) > 1", &[]),
            ("up{job=\"x\"} == 0 and on (job) absent(kn_revision_pods_count offset 5m)", &[]),
            ("zeroscale_refused", &["zeroscale_refused is not listed"]),
            ("zeroscale_held_seconds", &["zeroscale_held_seconds is not listed"]),
            ("rate(zeroscale_refused_total{cause=\"pod\"}[5m])", &["zeroscale_refused_total: cause"]),
            ("zeroscale_refused_total{reason=~\"pod|pods\"}", &["zeroscale_refused_total: reason is never pods"]),
            ("sum by (reason, kind) (zeroscale_refused_total)", &["by kind"]),
            ("sum(up) without (a)", &["by a"]),
        ];
        for (query, expected) in rows {
            assert_eq!(unknown_names(query), expected, "{query}");
        }
    }
}
