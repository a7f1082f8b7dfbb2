//! Acquires this process's share of the revisions.

use crate::options::Options;
use common::config::LeaderElectionConfig;
use common::ownership::{Holder, bucket_names};
use common_controller::shares::Shares;
use common_runtime::lease::{self, ElectorOptions};
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Campaigns for the buckets once `listed` is cancelled, unless a StatefulSet assigns them. The returned handle
/// completes when all leases are released.
pub(super) fn campaign(
    client: &Client,
    options: &Options,
    config: &LeaderElectionConfig,
    listed: &CancellationToken,
    until: &CancellationToken,
) -> (Shares, JoinHandle<()>) {
    if let Some(set) = &options.stateful_set {
        let names = set.buckets(config.buckets, &options.system_namespace, &options.cluster_domain);
        if set.ordinal >= names.len() {
            let (ordinal, buckets) = (set.ordinal, names.len());
            tracing::warn!(
                ordinal,
                buckets,
                "this member of the StatefulSet owns no bucket, so it only forwards stats"
            );
        }
        return (Shares::members(names, set.ordinal), tokio::spawn(async {}));
    }
    let names = bucket_names(config.buckets);
    let me = Holder { pod_name: options.pod_name.clone(), pod_ip: options.pod_ip };
    let elector = ElectorOptions {
        namespace: options.system_namespace.clone(),
        names: names.clone(),
        identity: me.to_string(),
        timing: config.timing,
        balance: options.install.profile().balances_leases,
    };
    let (ownership, released) = lease::start(client.clone(), elector, listed.clone().cancelled_owned(), until.clone());
    (Shares::new(names, ownership).known_as(me), released)
}
