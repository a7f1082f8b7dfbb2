//! Alert rules, read from their file.

use crate::repository_path;
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
    pub duration: Option<String>,
    /// Labels: `severity`.
    pub labels: BTreeMap<String, String>,
    /// Annotations: `summary` is the fault, `description` the remedy.
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
    let text = std::fs::read_to_string(repository_path(FILE)).context(FILE)?;
    let file: File = serde_yaml_ng::from_str(&text).context(FILE)?;
    Ok(file.groups.into_iter().flat_map(|group| group.rules).collect())
}

impl Rule {
    /// Returns an annotation, or an empty string if the rule does not have it.
    pub fn annotation(&self, name: &str) -> &str {
        self.annotations.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Returns `critical`, `warning` or `info`.
    pub fn severity(&self) -> &str {
        self.labels.get("severity").map(String::as_str).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promql::unknown_names;

    /// Goal: no rule refers to an unknown metric, and each rule describes fault and remedy.
    #[test]
    fn rules_query_existing_metrics() {
        for rule in read().expect("rules") {
            assert_eq!(unknown_names(&rule.expr), <[String; 0]>::default(), "{}", rule.alert);
            assert!(["critical", "warning", "info"].contains(&rule.severity()), "{rule:?}");
            for annotation in ["summary", "description"] {
                assert!(rule.annotation(annotation).ends_with(['.', ')']), "{}: {annotation}", rule.alert);
            }
            let row = format!("/alerts.html#{}", rule.alert.to_lowercase());
            assert!(rule.annotation("runbook_url").ends_with(&row), "{}: runbook_url", rule.alert);
        }
    }

    /// Goal: kube-controller-manager's flag in a description is the one in the manual. With an unknown flag,
    /// kube-controller-manager does not start.
    #[test]
    fn flags_in_descriptions_are_in_the_manual() {
        let manual = std::fs::read_to_string(repository_path("deploy/kubernetes/README.md")).expect("the manual");
        let rules = read().expect("rules");
        let codes = rules.iter().flat_map(|rule| rule.annotation("description").split('`'));
        let flags: Vec<&str> = codes.filter(|code| code.starts_with("--")).collect();
        assert!(!flags.is_empty());
        for flag in flags {
            assert!(manual.contains(&format!("`{flag}`")), "{flag}");
        }
    }
}
