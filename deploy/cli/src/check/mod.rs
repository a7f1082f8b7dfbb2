//! The `check` command: finds what keeps workloads from sleeping, waking or being managed, and how to fix it.
//!
//! | subject | module |
//! |---|---|
//! | rights of the user and of the planes | [`rights`] |
//! | definition, planes, dashboard | [`install`] |
//! | port numbers, NetworkPolicies | [`network`] |
//! | clocks of nodes and planes, compared with the API server | [`clocks`] |
//! | workloads: not Ready, unserved metrics, conflicting HorizontalPodAutoscalers and Services | [`workloads`] |
//!
//! A check that lacks the right to read its objects reports `unknown`, which is not an error. It returns that finding
//! as `Err`.

pub mod clocks;
pub mod install;
pub mod network;
pub mod rights;
pub mod workloads;

use crate::cluster::{Cluster, ClusterArgs};
use crate::text::{BAD, BUSY, Colours, GOOD, PLAIN};
use anyhow::bail;
use clap::Args;
use common::text::printable_line;
use kube::Resource;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Debug, Write as _};
use std::io::Write;

/// Advice for upgrading roles and Deployments. Applying our manifests unchanged would make another installation, since
/// namespace, rights and images are the installer's own.
pub(crate) const AS_INSTALLED: &str =
    "the way it was installed: `kubectl apply --server-side -k` with your own kustomization, or `helm upgrade`";

/// Arguments of `check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Output format.
    #[arg(short, long, value_parser = ["json", "yaml"])]
    pub output: Option<String>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckResult {
    /// No problem.
    Good,
    /// Worth knowing; no action needed.
    Note,
    /// Not checked: a right is missing, or no source has the information.
    Unknown,
    /// Action needed.
    Wrong,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Subject, as one word.
    pub about: &'static str,
    /// Result.
    #[serde(rename = "standing")]
    pub result: CheckResult,
    /// Description, as a sentence.
    #[serde(rename = "says")]
    pub message: String,
    /// Action to take. Empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Finding {
    /// Builds a finding without a problem.
    pub fn good(about: &'static str, message: impl Into<String>) -> Self {
        Self { about, result: CheckResult::Good, message: message.into(), remedy: String::new() }
    }

    /// Builds a finding that is worth knowing.
    pub fn note(about: &'static str, message: impl Into<String>) -> Self {
        Self { result: CheckResult::Note, ..Self::good(about, message) }
    }

    /// Builds a finding for something that cannot be checked.
    pub fn unknown(about: &'static str, message: impl Into<String>) -> Self {
        Self { result: CheckResult::Unknown, ..Self::good(about, message) }
    }

    /// Builds a finding with a problem and its remedy.
    pub fn wrong(about: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { about, result: CheckResult::Wrong, message: message.into(), remedy: remedy.into() }
    }

    /// Builds a finding for an object that cannot be read, with the API server's error.
    pub fn denied(about: &'static str, what: &str, error: &kube::Error) -> Self {
        let why = match error {
            kube::Error::Api(status) => status.message.clone(),
            error => error.to_string(),
        };
        Self::unknown(about, format!("{what} cannot be read: {why}"))
    }
}

/// Objects that every check needs.
pub struct CheckContext<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Namespace in which Zeroscale runs.
    pub system: &'a str,
    /// Options of the command line.
    pub named: &'a ClusterArgs,
}

impl CheckContext<'_> {
    /// Lists the objects of a kind in a namespace, or in all namespaces. Returns a finding if they cannot be read.
    async fn list<K>(&self, about: &'static str, namespace: Option<&str>) -> Result<Vec<K>, Finding>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let listed = self.cluster.api::<K>(namespace).list(&ListParams::default()).await;
        let place = namespace.map(|namespace| format!(" of {namespace}")).unwrap_or_default();
        let denied = |error| Finding::denied(about, &format!("{}{place}", K::plural(&())), &error);
        listed.map(|list| list.items).map_err(denied)
    }
}

/// Runs all checks and prints the findings. Fails if a finding has a problem, or if the API server cannot be reached.
pub async fn run(named: &ClusterArgs, args: &CheckArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let cluster = named.cluster().await?;
    if let Err(error) = cluster.client.apiserver_version().await {
        return Err(crate::cluster::api_error(error, "the version of the API server"));
    }
    let context = CheckContext { cluster: &cluster, system: &named.system_namespace, named };
    let (user, planes, install, network, clocks, workloads) = tokio::join!(
        rights::check_user(&context),
        rights::check_planes(&context),
        install::check(&context),
        network::check(&context),
        clocks::check(&context),
        workloads::check(&context),
    );
    let all = [user, planes, install, network, clocks, workloads].into_iter();
    let findings: Vec<Finding> = all.flat_map(|found| found.unwrap_or_else(|end| vec![end])).collect();
    let text = match args.output.as_deref() {
        Some("yaml") => serde_yaml_ng::to_string(&findings)?,
        Some(_) => format!("{}\n", serde_json::to_string_pretty(&findings)?),
        None => render_findings(&findings, Colours::of_output()),
    };
    out.write_all(text.as_bytes())?;
    let wrong = findings.iter().filter(|finding| finding.result == CheckResult::Wrong).count();
    if wrong > 0 {
        out.flush()?;
        bail!("{wrong} of {} findings are problems", findings.len());
    }
    Ok(())
}

/// Formats one line per finding, with its remedy below.
fn render_findings(findings: &[Finding], colours: Colours) -> String {
    let mut out = String::new();
    for finding in findings {
        let (word, style) = match finding.result {
            CheckResult::Good => ("ok", GOOD),
            CheckResult::Note => ("note", PLAIN),
            CheckResult::Unknown => ("unknown", BUSY),
            CheckResult::Wrong => ("WRONG", BAD),
        };
        let (word, message) = (colours.paint(style, &format!("{word:<8}")), printable_line(&finding.message));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{word} {:<11} {message}", finding.about);
        if !finding.remedy.is_empty() {
            let _ = writeln!(out, "{:<20} fix: {}", "", printable_line(&finding.remedy));
        }
    }
    out
}

/// Lists the first few names and the number of the rest.
pub(crate) fn first_names(names: &[String]) -> String {
    const NAMED: usize = 5;
    let first = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_with_its_remedy_below() {
        let findings = [
            Finding::good("definition", "zeroscalers.zeroscale.dev has the fields that this program knows"),
            Finding::wrong("planes", "autoscaler: 0 of 2 pods are ready", "kubectl describe it"),
            Finding::unknown("clocks", "nodes cannot be read: forbidden"),
        ];
        assert_eq!(
            render_findings(&findings, Colours(false)),
            "\
ok       definition  zeroscalers.zeroscale.dev has the fields that this program knows
WRONG    planes      autoscaler: 0 of 2 pods are ready
                     fix: kubectl describe it
unknown  clocks      nodes cannot be read: forbidden
"
        );
        let names: Vec<String> = (0..7).map(|number| number.to_string()).collect();
        assert_eq!(first_names(&names), "0, 1, 2, 3, 4 and 2 more");
    }
}
