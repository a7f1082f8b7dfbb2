//! Placeholders: `${name}` in a text stands for its bound value, or binds to a value that its family allows.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

/// Values bound to placeholders.
#[derive(Clone, Debug, Default)]
pub(super) struct Bindings(BTreeMap<String, String>);

/// Splits a text into pieces, each with the name of the placeholder that follows it.
fn pieces(text: &str) -> Vec<(&str, Option<&str>)> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, inner)) = rest.split_once("${")
        && let Some((name, after)) = inner.split_once('}')
    {
        pieces.push((before, Some(name)));
        rest = after;
    }
    pieces.push((rest, None));
    pieces
}

const TIME: &str = r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z";

/// Returns the pattern that an unbound placeholder matches, or `None` for a name of no family.
fn family(name: &str) -> Option<&'static str> {
    Some(match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "rv" => "[1-9][0-9]*",
        "lrv" => "[0-9]+",
        "uid" | "cont" => r"\S+",
        "ct" | "time" => TIME,
        "sfx" => "[a-z0-9]{5}",
        "name" => ".+",
        "ip" => r"(?:\d{1,3}\.){3}\d{1,3}",
        "microtime" => r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z",
        "age" => r"(?:<invalid>|(?:\d+[smhdy]){1,2})",
        "*" => "(?s:.*)",
        "any" => "(?s:.+)",
        _ => return None,
    })
}

/// Reports whether a placeholder is bound to the value that it matches.
fn binds(name: &str) -> bool {
    !matches!(name, "time" | "microtime" | "age" | "*" | "any")
}

impl Bindings {
    /// Binds a name before the first step.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.into(), value.into());
    }

    /// Replaces placeholders in a request, including keys.
    pub(super) fn fill(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => self.fill_text(text)?.into(),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect::<Result<_, _>>()?,
            Value::Object(fields) => {
                let fields = fields.iter().map(|(key, value)| Ok((self.fill_text(key)?, self.fill(value)?)));
                Value::Object(fields.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }

    /// Replaces placeholders in one text.
    pub(super) fn fill_text(&self, text: &str) -> Result<String, String> {
        let mut filled = String::new();
        for (text, name) in pieces(text) {
            filled.push_str(text);
            if let Some(name) = name {
                filled.push_str(self.0.get(name).ok_or_else(|| format!("${{{name}}} is not bound"))?);
            }
        }
        Ok(filled)
    }

    /// Matches an expected text and binds its unbound placeholders.
    pub(super) fn matches(&mut self, wanted: &str, got: &str) -> Result<(), String> {
        let mut pattern = String::from("^");
        let mut fresh = Vec::new();
        for (text, name) in pieces(wanted) {
            pattern.push_str(&regex::escape(text));
            let Some(name) = name else { continue };
            match self.0.get(name) {
                Some(bound) => pattern.push_str(&regex::escape(bound)),
                None => {
                    let family = family(name).ok_or_else(|| format!("${{{name}}} is of no family"))?;
                    pattern.push_str(&format!("({family})"));
                    fresh.push(name);
                }
            }
        }
        pattern.push('$');
        let differs = || format!("wanted {wanted:?}, got {got:?}");
        let found = Regex::new(&pattern).map_err(|error| error.to_string())?.captures(got).ok_or_else(differs)?;
        for (index, name) in fresh.into_iter().enumerate().filter(|(_, name)| binds(name)) {
            let value = found.get(index + 1).map(|value| value.as_str()).unwrap_or_default();
            self.bind(name, value).map_err(|rule| format!("{}: {rule}", differs()))?;
        }
        Ok(())
    }

    /// Binds a name, if the rule of its family allows the value in addition to the bound ones.
    fn bind(&mut self, name: &str, value: &str) -> Result<(), String> {
        if let Some(bound) = self.0.get(name) {
            return if bound == value { Ok(()) } else { Err(format!("${{{name}}} is both {bound} and {value}")) };
        }
        let split = |name: &str| {
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit()).to_string();
            let number: u64 = name[stem.len()..].parse().unwrap_or(0);
            (stem, number)
        };
        let (stem, number) = split(name);
        for (other, taken) in &self.0 {
            let (other_stem, other_number) = split(other);
            if other_stem != stem {
                continue;
            }
            match stem.as_str() {
                "uid" | "sfx" | "ip" if taken == value => {
                    return Err(format!("${{{name}}} is the same as ${{{other}}}"));
                }
                "rv" => {
                    let (mine, theirs): (u128, u128) = (value.parse().unwrap_or(0), taken.parse().unwrap_or(0));
                    if (number < other_number) != (mine < theirs) || mine == theirs {
                        return Err(format!("${{{name}}} = {value} is out of order with ${{{other}}} = {taken}"));
                    }
                }
                _ => {}
            }
        }
        self.0.insert(name.into(), value.into());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_match_and_bind_once() {
        let mut bindings = Bindings::default();
        assert_eq!(bindings.matches("gen-${sfx1}", "gen-ab2cd"), Ok(()));
        assert_eq!(bindings.fill_text("/x/gen-${sfx1}"), Ok("/x/gen-ab2cd".into()));
        assert!(bindings.matches("${sfx1}", "other").is_err(), "already bound");
        assert!(bindings.matches("${sfx2}", "ab2cd").is_err(), "two names of a family differ");
        assert!(bindings.matches("${rv1}", "007").is_err(), "no leading zeros");
        assert!(bindings.matches("${age}", "soon").is_err());
        assert_eq!(bindings.matches("${*}[+]ping ok${*}end\n", "a\n[+]ping ok\nb\nend\n"), Ok(()));
        assert!(bindings.fill_text("${nope}").is_err());
        assert!(bindings.matches("${nope1}", "x").is_err(), "no family");
    }

    #[test]
    fn versions_rise_with_their_numbers() {
        let mut bindings = Bindings::default();
        assert_eq!(bindings.matches("${rv2}", "20"), Ok(()));
        assert_eq!(bindings.matches("${rv1}", "9"), Ok(()));
        assert!(bindings.matches("${rv3}", "20").is_err());
        assert!(bindings.matches("${rv3}", "15").is_err());
        assert_eq!(bindings.matches("${rv3}", "100"), Ok(()));
    }
}
