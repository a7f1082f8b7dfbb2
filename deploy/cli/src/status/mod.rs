//! The `status` command: all workloads as a table, one workload in full, or a format for programs.

pub mod detail;
pub mod list;

use crate::cluster::{ClusterArgs, keys};
use crate::gather::Sources;
use crate::model::{Listing, Summary};
use crate::text::{self, Colours, width};
use clap::{Args, ValueEnum};
use common::RevisionKey;
use k8s_openapi::jiff::Timestamp;
use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

/// Interval between two reads with `--watch`.
const READ_INTERVAL: Duration = Duration::from_secs(2);

/// Arguments of `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Workloads: NAME of their ZeroScaler, or NAMESPACE/NAME. A single one is shown in full [default: all in the
    /// namespace].
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Show workloads of all namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["names", "namespace"])]
    pub all_namespaces: bool,
    /// Output format.
    #[arg(short, long, value_enum)]
    pub output: Option<Output>,
    /// Print changes, line by line, until Ctrl-C.
    #[arg(short, long)]
    pub watch: bool,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// The document of the dashboard's API.
    Json,
    /// The dashboard document as YAML.
    Yaml,
    /// Table with more columns.
    Wide,
    /// `zeroscaler.zeroscale.dev/NAME`, which kubectl accepts as an argument.
    Name,
}

/// Prints the workloads. Fails if no source can be reached, a name is unknown, or `out` is closed. With `--watch`,
/// errors after the first read are only warnings.
pub async fn run(place: &ClusterArgs, args: &StatusArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let sources = Sources::find(place).await;
    let namespace = sources.namespace(place);
    let names = keys(&args.names, &namespace)?;
    let table = matches!(args.output, None | Some(Output::Wide));
    if let ([name], true, false) = (&names[..], args.output.is_none(), args.watch) {
        return detail::run(&sources, name, out).await;
    }
    let scope = (!args.all_namespaces).then_some(namespace.as_str());
    let mut warned = Vec::new();
    let mut warn = |text: String| {
        if !warned.contains(&text) {
            text::warn(&text);
            warned.push(text);
        }
    };
    let mut printed: HashMap<RevisionKey, Summary> = HashMap::new();
    let (mut is_first, mut is_failing) = (true, false);
    loop {
        let listed = match &names[..] {
            [] => sources.list(scope, &mut warn).await,
            names => sources.list_named(names, is_first, &mut warn).await,
        };
        let listing = match listed {
            Err(error) if is_first => return Err(error),
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    text::warn(&format!("{error:#}; trying again"));
                }
                tokio::time::sleep(READ_INTERVAL).await;
                continue;
            }
            Ok(listing) => listing,
        };
        is_failing = false;
        let is_new = |workload: &&Summary| printed.get(&workload.key()) != Some(*workload);
        let changed: Vec<Summary> = listing.workloads.iter().filter(is_new).cloned().collect();
        printed = listing.workloads.iter().map(|workload| (workload.key(), workload.clone())).collect();
        if table && is_first && changed.is_empty() {
            let place = scope.map_or_else(|| "the cluster".to_owned(), |namespace| format!("namespace {namespace}"));
            eprintln!("no ZeroScalers in {place}");
        } else if table && (is_first || !changed.is_empty()) {
            let layout = list::TableLayout {
                wide: args.output == Some(Output::Wide),
                namespaces: args.all_namespaces || names.iter().any(|key| key.namespace() != namespace),
                heads: is_first,
                now: Timestamp::now(),
                colours: Colours::of_output(),
                width: width(),
            };
            out.write_all(list::table(&changed, &layout).as_bytes())?;
        } else if !table && (is_first || !changed.is_empty()) {
            let listing = Listing { workloads: if is_first { listing.workloads } else { changed }, ..listing };
            out.write_all(document(&listing, args.output)?.as_bytes())?;
        }
        if !args.watch {
            return Ok(());
        }
        is_first = false;
        out.flush()?;
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

/// Formats the listing for programs.
fn document(listing: &Listing, output: Option<Output>) -> anyhow::Result<String> {
    Ok(match output {
        Some(Output::Name) => {
            let line = |workload: &Summary| format!("zeroscaler.zeroscale.dev/{}\n", workload.name);
            listing.workloads.iter().map(line).collect()
        }
        Some(Output::Yaml) => format!("---\n{}", serde_yaml_ng::to_string(listing)?),
        _ => format!("{}\n", serde_json::to_string_pretty(listing)?),
    })
}
