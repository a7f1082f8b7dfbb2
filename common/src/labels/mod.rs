//! Labels and label selectors: the text form, the structured form, and matching.
//!
//! ```text
//! selector    = [ requirement *( "," requirement ) ]
//! requirement = key | "!" key | key op value | key ("in" | "notin") "(" value *( "," value ) ")"
//! op          = "=" | "==" | "!=" | ">" | "<"
//! ```
//! An empty text selects everything. An absent key satisfies `!=` and `notin`. Error texts are those of Kubernetes,
//! because users see them in a condition and an event.
//!
//! The embedded API server uses these rules as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

mod parser;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Requirements that labels must satisfy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

/// Test of one label's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The label is present with one of these values.
    In(BTreeSet<String>),
    /// The label is absent or has none of these values.
    NotIn(BTreeSet<String>),
    /// The label is present.
    Exists,
    /// The label is absent.
    Absent,
    /// The label is present and a number above this.
    Above(i64),
    /// The label is present and a number below this.
    Below(i64),
}

/// Reports whether `labels` contain every label of `selector`, which is the complete rule of a Service's selector.
pub fn have_all(labels: &Labels, selector: &Labels) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

impl Selector {
    /// Parses the text form. An error names the unexpected text and the expected one.
    pub fn parse(text: &str) -> Result<Self, String> {
        parser::parse(text).map(Self)
    }

    /// Reports whether `labels` satisfy all requirements.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_with(|key| labels.get(key).map(String::as_str))
    }

    /// Like [`matches`](Self::matches), for labels that `value` looks up by key.
    pub fn matches_with<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|Requirement { key, test }| test.holds(value(key)))
    }

    /// Reports whether there are no requirements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Test {
    /// Reports whether a label's value satisfies the test; `None` means that the label is absent.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|v| values.contains(v)),
            Self::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Above(bound) => number().is_some_and(|v| v > *bound),
            Self::Below(bound) => number().is_some_and(|v| v < *bound),
        }
    }
}

/// Structured form of a selector, as objects contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSelector {
    /// Required labels and their values.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub match_labels: Labels,
    /// Additional requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Expression>,
}

/// Requirement in a [`LabelSelector`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Expression {
    /// Key of the label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values, for `In` and `NotIn` only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Reports whether there are no requirements.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Converts to a selector that can be matched. Fails for an unknown operator, or for values that its operator does
    /// not permit.
    pub fn selector(&self) -> Result<Selector, String> {
        let requirement = |key: &String, test| Requirement { key: key.clone(), test };
        let labels =
            self.match_labels.iter().map(|(key, value)| Ok(requirement(key, Test::In([value.clone()].into()))));
        let expressions = self.match_expressions.iter().map(|e| Ok(requirement(&e.key, e.test()?)));
        labels.chain(expressions).collect::<Result<_, _>>().map(Selector)
    }

    /// Formats the text that the metrics APIs accept, sorted by key; empty without requirements. Fails for an unknown
    /// operator, or for values that its operator does not permit.
    pub fn text(&self) -> Result<String, String> {
        let mut parts: Vec<(&str, String)> =
            self.match_labels.iter().map(|(key, value)| (key.as_str(), format!("{key}={value}"))).collect();
        for expression in &self.match_expressions {
            parts.push((&expression.key, expression.text()?));
        }
        parts.sort_by(|a, b| a.0.cmp(b.0));
        Ok(parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
    }
}

impl Expression {
    fn test(&self) -> Result<Test, String> {
        let Self { key, operator, values } = self;
        let set = || values.iter().cloned().collect();
        match operator.as_str() {
            "In" | "NotIn" if values.is_empty() => Err(format!(
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty ({key})"
            )),
            "In" => Ok(Test::In(set())),
            "NotIn" => Ok(Test::NotIn(set())),
            "Exists" | "DoesNotExist" if !values.is_empty() => Err(format!(
                "values: Invalid value: {values:?}: values set must be empty for exists and does not exist"
            )),
            "Exists" => Ok(Test::Exists),
            "DoesNotExist" => Ok(Test::Absent),
            other => Err(format!("{other:?} is not a valid label selector operator")),
        }
    }

    fn text(&self) -> Result<String, String> {
        let key = &self.key;
        let listed = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(",");
        Ok(match self.test()? {
            Test::In(values) => format!("{key} in ({})", listed(values)),
            Test::NotIn(values) => format!("{key} notin ({})", listed(values)),
            Test::Absent => format!("!{key}"),
            _ => key.clone(),
        })
    }
}

/// Formats like the Kubernetes controller prints a selector within a metric's name.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("&LabelSelector{MatchLabels:map[string]string{")?;
        for (key, value) in &self.match_labels {
            write!(f, "{key}: {value},")?;
        }
        f.write_str("},MatchExpressions:[]LabelSelectorRequirement{")?;
        for Expression { key, operator, values } in &self.match_expressions {
            let values = values.join(" ");
            write!(f, "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")?;
        }
        f.write_str("},}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structured_form_has_the_text_of_a_metric_selector_and_selects_the_same_objects() {
        let empty = "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty (tier)";
        let given = "values: Invalid value: [\"a\"]: values set must be empty for exists and does not exist";
        for (operator, values, text) in [
            ("In", &["b", "a"][..], Ok("app=web,tier in (a,b)")),
            ("NotIn", &["a"], Ok("app=web,tier notin (a)")),
            ("Exists", &[], Ok("app=web,tier")),
            ("DoesNotExist", &[], Ok("app=web,!tier")),
            ("Near", &["a"], Err("\"Near\" is not a valid label selector operator")),
            ("In", &[], Err(empty)),
            ("Exists", &["a"], Err(given)),
        ] {
            let match_expressions = vec![expression(operator, values)];
            let selector = LabelSelector { match_labels: labels("app=web"), match_expressions };
            assert_eq!(selector.text(), text.map(str::to_owned).map_err(str::to_owned), "{operator}");
            assert_eq!(selector.selector().is_ok(), text.is_ok(), "{operator}");
            let (Ok(by_structure), Ok(text)) = (selector.selector(), text) else { continue };
            let by_text = Selector::parse(text).expect("readable");
            for object in ["app=web", "app=web,tier=a", "app=web,tier=c", "app=db,tier=a", ""] {
                let object = labels(object);
                assert_eq!(by_structure.matches(&object), by_text.matches(&object), "{selector} {object:?}");
            }
        }
        let none = LabelSelector::default();
        assert!(none.is_empty() && none.text() == Ok(String::new()) && !have_all(&labels("a=b"), &labels("a=c")));
    }

    fn expression(operator: &str, values: &[&str]) -> Expression {
        let values = values.iter().map(ToString::to_string).collect();
        Expression { key: "tier".into(), operator: operator.into(), values }
    }

    fn labels(text: &str) -> Labels {
        text.split(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
    }

    #[test]
    fn a_selector_matches_if_all_requirements_hold() {
        for (selector, object, matches) in [
            ("", "", true),
            ("app=web", "app=web,tier=a", true),
            ("app=web", "app=other", false),
            ("app == web , tier!=b", "app=web", true),
            ("app,!tier", "app=x", true),
            ("app,!tier", "app=x,tier=y", false),
            ("app in (web,other)", "app=other", true),
            ("app in (web,other)", "tier=other", false),
            ("app notin (web)", "", true),
            ("app notin (web)", "app=web", false),
            ("app in (,web)", "app=", true),
            ("in in (in,notin)", "in=notin", true),
            ("size>3,size<5", "size=4", true),
            ("size>3", "size=3", false),
            ("size<5", "size=5", false),
            ("size>3", "size=big", false),
            ("example.com/app=", "example.com/app=", true),
            ("ex4mple-1.com/app", "ex4mple-1.com/app=x", true),
        ] {
            let parsed = Selector::parse(selector).expect(selector);
            assert_eq!(parsed.matches(&labels(object)), matches, "{selector} on {object}");
        }
    }

    #[test]
    fn a_malformed_selector_names_the_expected_text() {
        for (selector, error) in [
            ("app==web==", "found '==', expected: ',' or 'end of string'"),
            ("app in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("cheddar cheese", "unable to parse requirement: found 'cheese', expected: in, notin, =, ==, !=, gt, lt"),
            ("app=web,", "found '', expected: identifier after ','"),
            ("=web", "found '=', expected: !, identifier, or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("app in web", "unable to parse requirement: found 'web' expected: '('"),
            ("app in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
            ("app=(", "unable to parse requirement: found '(', expected: identifier"),
        ] {
            assert_eq!(Selector::parse(selector), Err(error.to_owned()), "{selector}");
        }
        for selector in ["app in ()", "app=-x", "-=x", "size>x", "a/b/c=d"] {
            assert!(Selector::parse(selector).is_err(), "{selector}");
        }
        for prefix in ["", "-a.com", "a-.com", "a.-b", "a.b-", "a..b", "A.com", "a_b.com"] {
            assert!(Selector::parse(&format!("{prefix}/app")).is_err(), "{prefix:?} is no domain");
        }
        for (length, is_read) in [(253, true), (254, false)] {
            let key = format!("{}/app", "a".repeat(length));
            assert_eq!(Selector::parse(&key).is_ok(), is_read, "a prefix of {length} characters");
        }
    }

    proptest::proptest! {
        /// Goal: no text makes the parser panic or hang, and a parsed selector can be matched with any labels.
        #[test]
        fn any_text_is_read_or_refused(text in r"([a-z/.=!<>(),-]| in | notin |é){0,24}") {
            if let Ok(selector) = Selector::parse(&text) {
                selector.matches(&labels("a=b,c=d"));
            }
        }
    }

    #[test]
    fn a_metric_selector_is_printed_as_the_controller_does() {
        let match_expressions = vec![expression("In", &["b", "c"])];
        let selector = LabelSelector { match_labels: labels("verb=GET"), match_expressions };
        assert_eq!(
            selector.to_string(),
            "&LabelSelector{MatchLabels:map[string]string{verb: GET,},MatchExpressions:\
             []LabelSelectorRequirement{LabelSelectorRequirement{Key:tier,Operator:In,Values:[b c],},},}"
        );
    }
}
