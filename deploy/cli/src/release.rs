//! The `release` command: restores what ZeroScalers hold by the autoscaler's own rule ([`autoscaler::release`]), for
//! clusters in which no autoscaler runs any more.

use crate::cluster::{ClusterArgs, keys};
use anyhow::bail;
use autoscaler::release::{Scope, release};
use clap::Args;
use std::io::Write;

/// Arguments of `release`.
#[derive(Args, Clone, Debug)]
pub struct ReleaseArgs {
    /// ZeroScalers to release [default: all in the namespace of --namespace].
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Release the ZeroScalers of all namespaces.
    #[arg(long, conflicts_with_all = ["names", "namespace"])]
    pub all: bool,
}

/// Releases the ZeroScalers and prints each step. Fails if the arguments select nothing, or if a ZeroScaler could not
/// be released.
pub async fn run(place: &ClusterArgs, args: &ReleaseArgs, out: &mut impl Write) -> anyhow::Result<()> {
    if args.names.is_empty() && !args.all && place.namespace.is_none() {
        bail!("nothing is selected: give NAME, --namespace NAMESPACE for all of a namespace, or --all");
    }
    let cluster = place.cluster().await?;
    let scope = match (args.all, &args.names[..]) {
        (true, _) => Scope::All,
        (false, []) => Scope::Namespace(cluster.namespace),
        (false, names) => {
            let names = keys(names, &cluster.namespace)?;
            if names.iter().any(|key| key.namespace() != cluster.namespace) {
                bail!("all names must be in one namespace: set it with --namespace");
            }
            Scope::Named(cluster.namespace, names.iter().map(|key| key.name().to_owned()).collect())
        }
    };
    // Write errors are ignored: a closed output must not stop the release half way.
    release(&cluster.client, &scope, |step| drop(writeln!(out, "{step}"))).await
}
