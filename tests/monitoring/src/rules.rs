//! The alert rules as written.

use crate::place;
use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Path of the rules.
pub const FILE: &str = "deploy/kubernetes/monitoring/rules.yaml";

/// An alert rule.
#[derive(Clone, Debug, Deserialize)]
pub struct Rule {
    /// Name of the alert.
    pub alert: String,
    /// Condition in PromQL.
    pub expr: String,
    /// Time for which the condition must hold before the alert fires.
    #[serde(rename = "for")]
    pub lasting: Option<String>,
    /// Labels: `severity`.
    pub labels: BTreeMap<String, String>,
    /// Annotations: `summary` is the fault, `description` tells what to do.
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

/// Returns all rules in order.
///
/// # Errors
/// Fails if the file cannot be read or has another structure.
pub fn read() -> anyhow::Result<Vec<Rule>> {
    let text = std::fs::read_to_string(place(FILE)).context(FILE)?;
    let file: File = serde_yaml_ng::from_str(&text).context(FILE)?;
    Ok(file.groups.into_iter().flat_map(|group| group.rules).collect())
}

impl Rule {
    /// Returns an annotation, or an empty string if the rule does not have it.
    pub fn says(&self, annotation: &str) -> &str {
        self.annotations.get(annotation).map(String::as_str).unwrap_or_default()
    }

    /// Returns `critical`, `warning` or `info`.
    pub fn severity(&self) -> &str {
        self.labels.get("severity").map(String::as_str).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promql::strangers;

    /// Goal: no rule refers to an unknown metric, and each rule describes the fault and what to do.
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

    /// Goal: the kube-controller-manager flag in an alert's description is the one that the manual explains. With
    /// another name, kube-controller-manager does not start.
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
