//! Collects workloads: ZeroScalers from the API server, and the load that the dashboard reports.
//!
//! One of the two sources is enough. Warnings on standard error name what is missing.

use crate::cluster::{Cluster, ClusterArgs};
use crate::dashboard::Dashboard;
use crate::model::{Listing, Summary};
use common::RevisionKey;
use common_api::ZeroScaler;
use std::collections::HashMap;

/// Sources of workload data.
pub struct Sources {
    /// The API server.
    pub cluster: anyhow::Result<Cluster>,
    /// The dashboard.
    pub dashboard: anyhow::Result<Dashboard>,
}

impl Sources {
    /// Connects to both sources.
    pub async fn find(place: &ClusterArgs) -> Self {
        let cluster = place.cluster().await;
        let dashboard = place.dashboard(&cluster).await;
        Self { cluster, dashboard }
    }

    /// Returns the cluster, or the reason why it cannot be reached.
    pub(crate) fn cluster(&self) -> anyhow::Result<&Cluster> {
        self.cluster.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))
    }

    /// Returns the dashboard, or the reason why it cannot be reached.
    pub(crate) fn dashboard(&self) -> anyhow::Result<&Dashboard> {
        self.dashboard.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))
    }

    /// Returns the namespace that applies if none is named.
    pub fn namespace(&self, place: &ClusterArgs) -> String {
        let named = place.namespace.clone();
        named.or_else(|| Some(self.cluster.as_ref().ok()?.namespace.clone())).unwrap_or_else(|| "default".to_owned())
    }

    /// Lists the workloads of a namespace, or of all namespaces if it is `None`, sorted by name. `warn` receives a
    /// message for each source that failed. Fails if both sources fail.
    pub async fn list(&self, namespace: Option<&str>, warn: &mut impl FnMut(String)) -> anyhow::Result<Listing> {
        let objects = async { self.cluster()?.list(namespace).await }.await;
        let live = async { self.dashboard()?.list(namespace).await }.await;
        match (objects, live) {
            (Ok(objects), Ok(live)) => {
                for replica in live.replicas.iter().filter(|replica| !replica.answered) {
                    let why = replica.error.as_deref().unwrap_or("no response");
                    warn(format!(
                        "autoscaler {} did not respond, so its workloads are shown without load: {why}",
                        replica.name
                    ));
                }
                Ok(merged(&objects, live))
            }
            (Ok(objects), Err(error)) => {
                warn(format!("workloads are shown without load, which only the dashboard has: {error:#}"));
                Ok(merged(&objects, Listing::default()))
            }
            (Err(error), Ok(live)) => {
                warn(format!("workloads are shown without ages: {error:#}"));
                Ok(Listing { workloads: sorted(live.workloads), ..live })
            }
            (Err(error), Err(other)) => {
                warn(format!("the dashboard cannot be reached either: {other:#}"));
                Err(error)
            }
        }
    }

    /// Returns only the named workloads. After the first call, a missing workload is a warning instead of an error.
    /// Fails if both sources fail, or if a workload is missing on the first call.
    pub async fn list_named(
        &self,
        names: &[RevisionKey],
        is_first: bool,
        warn: &mut impl FnMut(String),
    ) -> anyhow::Result<Listing> {
        let first = names.first().map(RevisionKey::namespace);
        let one = first.filter(|first| names.iter().all(|key| key.namespace() == *first));
        let mut listing = self.list(one, warn).await?;
        let mut found = Vec::new();
        for key in names {
            let missing = || anyhow::anyhow!("no ZeroScaler {:?} in namespace {:?}", key.name(), key.namespace());
            match listing.workloads.iter().find(|workload| workload.key() == *key) {
                Some(workload) => found.push(workload.clone()),
                None if is_first => return Err(missing()),
                None => warn(missing().to_string()),
            }
        }
        listing.workloads = found;
        Ok(listing)
    }
}

/// Merges ZeroScalers with the dashboard's data.
fn merged(objects: &[ZeroScaler], live: Listing) -> Listing {
    let mut known: HashMap<_, _> = live.workloads.into_iter().map(|workload| (workload.key(), workload)).collect();
    let merge = |object: &ZeroScaler| {
        let own = Summary::from_object(object);
        match known.remove(&object.key()) {
            // `paused` comes from the ZeroScaler: it is newer than the dashboard's copy.
            Some(live) => Summary { created: own.created, paused: own.paused, ..live },
            None => own,
        }
    };
    let workloads = objects.iter().map(merge).collect();
    Listing { replicas: live.replicas, workloads: sorted(workloads) }
}

fn sorted(mut workloads: Vec<Summary>) -> Vec<Summary> {
    workloads.sort_by_key(Summary::key);
    workloads
}
