//! The `why` command: explains the decision about one workload, its inputs and earlier decisions.

use crate::cluster::{ClusterArgs, key};
use crate::gather::Sources;
use autoscaler_core::history::words;
use clap::Args;
use common::text::printable_line;
use serde_json::json;
use std::io::Write;

/// Arguments of `why`.
#[derive(Args, Clone, Debug)]
pub struct WhyArgs {
    /// Workload: NAME of its ZeroScaler, or NAMESPACE/NAME.
    pub name: String,
    /// Print the raw document.
    #[arg(short, long, value_parser = ["json"])]
    pub output: Option<String>,
}

/// Explains one workload. Fails if the dashboard cannot be reached or does not know the workload.
pub async fn run(place: &ClusterArgs, args: &WhyArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let sources = Sources::find(place).await;
    let key = key(&args.name, &sources.namespace(place))?;
    let dashboard = sources.dashboard?;
    let mut detail = dashboard.detail(&key).await?;
    if detail.decision["history"].is_null() {
        detail.decision["history"] = json!(detail.history);
    }
    // There may be no decision, or one without a name.
    if detail.decision["revision"].is_null() {
        detail.decision["revision"] = json!(key.as_str());
    }
    if args.output.is_some() {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&detail)?)?);
    }
    writeln!(out, "{}", printable_line(&format!("{key}: {}", detail.summary.why)))?;
    Ok(out.write_all(words::table(&detail.decision).as_bytes())?)
}
