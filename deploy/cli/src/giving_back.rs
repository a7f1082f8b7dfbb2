//! `release`: gives back what ZeroScalers hold, by the autoscaler's own rule ([`autoscaler::release`]), where none runs.

use crate::cluster::{Name, Where};
use anyhow::bail;
use autoscaler::release::{Scope, release};
use clap::Args;
use std::io::Write;

/// What is asked of `release`.
#[derive(Args, Clone, Debug)]
pub struct ReleaseArgs {
    /// ZeroScalers of the namespace; none: all of it, if that is named.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// All namespaces.
    #[arg(long, conflicts_with_all = ["names", "namespace"])]
    pub all: bool,
}

/// Releases them, and says each step.
///
/// # Errors
/// Nothing is named, or some could not be released.
pub async fn run(place: &Where, args: &ReleaseArgs, out: &mut impl Write) -> anyhow::Result<()> {
    if args.names.is_empty() && !args.all && place.namespace.is_none() {
        bail!("say what to release: NAME, --namespace NAMESPACE for all of it, or --all");
    }
    let cluster = place.cluster().await?;
    let scope = match (args.all, &args.names[..]) {
        (true, _) => Scope::All,
        (false, []) => Scope::Namespace(cluster.namespace),
        (false, names) => {
            let names =
                names.iter().map(|name| Name::read(name, &cluster.namespace)).collect::<anyhow::Result<Vec<_>>>()?;
            if names.iter().any(|name| name.namespace != cluster.namespace) {
                bail!("names of one namespace at a time: say it by --namespace");
            }
            Scope::Named(cluster.namespace, names.into_iter().map(|name| name.name).collect())
        }
    };
    // What is told is worth nothing to the release itself: who reads no more does not end it half way.
    release(&cluster.client, &scope, |step| drop(writeln!(out, "{step}"))).await
}
