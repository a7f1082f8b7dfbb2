//! Alert rules, read from their file, and the files generated from them: an object for the Prometheus Operator, and a
//! page of the manual.

use crate::repository_path;
use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;

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

/// Returns all rules in order. Fails if the file cannot be read or has another structure.
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

/// Path of the generated object.
pub const OBJECT: &str = "deploy/kubernetes/monitoring/prometheus-rule.yaml";
/// Path of the page.
pub const PAGE: &str = "deploy/docs/alerts.md";

const OBJECT_HEAD: &str = "# Generated from rules.yaml: cargo run -p monitoring
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: zeroscale
  namespace: zeroscale-system
  labels:
    app.kubernetes.io/name: zeroscale
spec:
";

const PAGE_HEAD: &str = "<!-- Generated: cargo run -p monitoring -->
# Alerts

This page lists [the alert rules](../kubernetes/monitoring/rules.yaml), and what to do about each. One fault fires one
alert.

- `critical`: workloads do not start, or no autoscaler decides about them.
- `warning`: requests are lost or late, or soon will be.
- `info`: it works as configured, which may not be what you want.

The rules cover processes of Zeroscale only, which they recognize by the metric `zeroscale_build_info`. Knative's
processes fire no alert and hide none. If you have replaced only some of Knative's components, the others are not
reported as missing, because they have not exported that metric within a day.

| fault | alert | severity | after | what to do |
|---|---|---|---|---|
";

/// Returns the object's text. Fails if the rules cannot be read.
pub fn object() -> anyhow::Result<String> {
    let rules = std::fs::read_to_string(repository_path(FILE)).context(FILE)?;
    let lines = rules.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.fold(OBJECT_HEAD.to_owned(), |object, line| format!("{object}  {line}\n")))
}

/// Returns the page's text.
pub fn page(rules: &[Rule]) -> String {
    let mut page = PAGE_HEAD.to_owned();
    for rule in rules {
        let after = rule.duration.as_deref().unwrap_or("at once");
        let text = |annotation| templates(rule.annotation(annotation)).replace('|', "\\|");
        let (fault, action) = (text("summary"), text("description"));
        let (alert, severity) = (&rule.alert, rule.severity());
        let anchor = format!("<a id=\"{}\"></a>", alert.to_lowercase()); // Target of `runbook_url`.
        let _ = writeln!(page, "| {fault} | {anchor}`{alert}` | {severity} | {after} | {action} |");
    }
    page
}

/// Replaces Prometheus's templates by placeholders: `{{ $labels.lease }}` becomes `LEASE`.
fn templates(text: &str) -> String {
    let mut parts = text.split("{{ $labels.");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (label, rest) = part.split_once(" }}").unwrap_or((part, ""));
        let name = match label {
            "k8s_namespace_name" => "NAMESPACE".to_owned(),
            "kn_revision_name" => "NAME".to_owned(),
            label => label.to_uppercase(),
        };
        filled.extend([name.as_str(), rest]);
    }
    filled
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

    /// Goal: the files in the repository match the rules. Remedy: run the command in their first line.
    #[test]
    fn generated_files_match_the_rules() {
        let current = |path| std::fs::read_to_string(repository_path(path)).expect(path);
        assert!(current(OBJECT) == object().expect("rules"), "{OBJECT} differs from the rules");
        assert!(current(PAGE) == page(&read().expect("rules")), "{PAGE} differs from the rules");
    }
}
