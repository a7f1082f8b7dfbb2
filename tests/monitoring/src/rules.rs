//! The alert rules as they are written.

use crate::place;
use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Where they stand.
pub const FILE: &str = "deploy/kubernetes/monitoring/rules.yaml";

/// One of them.
#[derive(Clone, Debug, Deserialize)]
pub struct Rule {
    /// Its name.
    pub alert: String,
    /// When it holds, in PromQL.
    pub expr: String,
    /// How long it has to.
    #[serde(rename = "for")]
    pub lasting: Option<String>,
    /// `severity`.
    pub labels: BTreeMap<String, String>,
    /// `summary`: the fault; `description`: what to do.
    pub annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct File {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

/// All of them, in order.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn read() -> anyhow::Result<Vec<Rule>> {
    let text = std::fs::read_to_string(place(FILE)).context(FILE)?;
    let file: File = serde_yaml_ng::from_str(&text).context(FILE)?;
    Ok(file.groups.into_iter().flat_map(|group| group.rules).collect())
}

impl Rule {
    /// An annotation; empty: there is none.
    pub fn says(&self, annotation: &str) -> &str {
        self.annotations.get(annotation).map(String::as_str).unwrap_or_default()
    }

    /// `critical`, `warning` or `info`.
    pub fn severity(&self) -> &str {
        self.labels.get("severity").map(String::as_str).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promql::strangers;

    /// Goal: no rule speaks of what there is not, and each says what is wrong and what to do.
    #[test]
    fn rules_name_what_there_is() {
        for rule in read().expect("rules") {
            assert_eq!(strangers(&rule.expr), <[String; 0]>::default(), "{}", rule.alert);
            assert!(["critical", "warning", "info"].contains(&rule.severity()), "{rule:?}");
            for annotation in ["summary", "description"] {
                assert!(rule.says(annotation).ends_with(['.', ')']), "{}: {annotation}", rule.alert);
            }
            let row = format!("/alerts.html#{}", rule.alert.to_lowercase());
            assert!(rule.says("runbook_url").ends_with(&row), "{}: runbook_url", rule.alert);
        }
    }

    /// Goal: the flag of kube-controller-manager that an operator is told is the one that the manual explains: with another
    /// name it does not start.
    #[test]
    fn a_flag_is_the_manuals() {
        let manual = std::fs::read_to_string(place("deploy/kubernetes/README.md")).expect("the manual");
        let rules = read().expect("rules");
        let flags =
            rules.iter().flat_map(|rule| rule.says("description").split('`').filter(|code| code.starts_with("--")));
        let flags: Vec<&str> = flags.collect();
        assert!(!flags.is_empty());
        for flag in flags {
            assert!(manual.contains(&format!("`{flag}`")), "{flag}");
        }
    }
}
