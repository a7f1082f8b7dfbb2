//! Files generated from the alert rules: an object for the Prometheus Operator, and a page of the manual.

use crate::repository_path;
use crate::rules::{FILE, Rule};
use anyhow::Context;
use std::fmt::Write;

/// Path of the object.
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

/// Returns the object's text.
///
/// # Errors
/// Fails if the rules cannot be read.
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
    use crate::rules::read;

    /// Goal: the files in the repository match the rules. Remedy: run the command in their first line.
    #[test]
    fn generated_files_match_the_rules() {
        let current = |path| std::fs::read_to_string(repository_path(path)).expect(path);
        assert!(current(OBJECT) == object().expect("rules"), "{OBJECT} differs from the rules");
        assert!(current(PAGE) == page(&read().expect("rules")), "{PAGE} differs from the rules");
    }
}
