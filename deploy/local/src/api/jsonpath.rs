//! The JSON paths of printer columns: fields, indexes, `[*]`, and filters like `[?(@.type=='Ready')]`.

use serde_json::Value;

use super::fields::same_text;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
    All,
    Equal(Path, String),
}

impl Path {
    /// Reads a path like `.status.conditions[?(@.type=="Ready")].status`.
    pub(crate) fn parse(text: &str) -> Option<Path> {
        let mut steps = Vec::new();
        let mut rest = text.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let end = closing(inner)?;
                steps.push(bracket(&inner[..end])?);
                rest = &inner[end + 1..];
                continue;
            }
            rest = rest.strip_prefix('.')?;
            let mut name = String::new();
            let mut chars = rest.char_indices();
            let mut end = rest.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => name.extend(chars.next().map(|(_, c)| c)),
                    '.' | '[' => {
                        end = at;
                        break;
                    }
                    c => name.push(c),
                }
            }
            rest = &rest[end..];
            if !name.is_empty() {
                steps.push(Step::Field(name));
            }
        }
        Some(Path(steps))
    }

    /// The first value at the path.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        find(&self.0, value)
    }
}

/// Where the bracket that was opened ends, outside quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ']') => return Some(at),
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        let (path, wanted) = filter.split_once("==")?;
        let path = Path::parse(path.trim().strip_prefix('@')?)?;
        return Some(Step::Equal(path, unquote(wanted.trim()).to_string()));
    }
    match text.parse() {
        Ok(index) => Some(Step::Index(index)),
        Err(_) => Some(Step::Field(unquote(text).to_string())),
    }
}

fn unquote(text: &str) -> &str {
    let strip = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    strip('\'').or_else(|| strip('"')).unwrap_or(text)
}

fn find<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match step {
        Step::Field(name) => find(rest, value.get(name)?),
        Step::Index(index) => find(rest, value.get(index)?),
        Step::All => value.as_array()?.iter().find_map(|item| find(rest, item)),
        Step::Equal(path, wanted) => value.as_array()?.iter().find_map(|item| {
            let same = same_text(path.find(item)?, wanted);
            if same { find(rest, item) } else { None }
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finds_fields_indexes_and_conditions() {
        let value = json!({"status": {"conditions": [{"type": "A", "status": "x"}, {"type": "Ready", "status": "y"}]},
            "metadata": {"annotations": {"a.b/c": "d"}}});
        for (path, wanted) in [
            (".status.conditions[?(@.type=='Ready')].status", Some("y")),
            (".status.conditions[?(@.type==\"A\")].status", Some("x")),
            (".status.conditions[1].type", Some("Ready")),
            (".status.conditions[*].type", Some("A")),
            (".metadata.annotations.a\\.b/c", Some("d")),
            (".metadata.annotations['a.b/c']", Some("d")),
            (".status.conditions[?(@.type=='Nope')].status", None),
        ] {
            let path = Path::parse(path).unwrap();
            assert_eq!(path.find(&value).and_then(Value::as_str), wanted, "{path:?}");
        }
        assert_eq!(Path::parse("a.b"), None, "a path begins with a dot");
    }
}
