//! Front end that replaces Knative Serving's own autoscaler.
//!
//! Knative's controller creates a PodAutoscaler for each revision, its webhook validates it, its queue-proxies count
//! requests, and its ServerlessService controller routes the traffic. This front end therefore validates nothing and
//! writes no traffic Service. Everything else is as upstream: defaults, rates, names.

pub mod bucket_services;
pub(crate) mod children;
pub(crate) mod metric;
pub(crate) mod revisions;
pub(crate) mod statuses;
pub(crate) mod store;

use crate::cluster::FrontEndQueues;
use crate::engine::Wiring;
use crate::engine::parts::Parts;
use crate::pods::PodScope;
use crate::profile::Profile;
use crate::reconcile::Reconcilers;
use common::names;
use common::write_rate::Rate;
use common_controller::WorkQueue;
use common_runtime::namespaces::Namespaces;
use kube::runtime::watcher;
use revisions::Revisions;
use statuses::MERGED_WITHIN;
use std::sync::Arc;
use store::{Measurements, Objects};
use tokio_util::sync::CancellationToken;

/// Values of this install.
pub(crate) const PROFILE: Profile = Profile {
    kind: "PodAutoscaler",
    api_rate: Rate::AUTOSCALER,
    account: "controller", // Knative's autoscaler runs under the account of its controller.
    leases: None,
    balances_leases: false,
    has_bucket_services: true,
    defaults_replace_maps: false,
    owns_activators: false,
    has_own_rules: false,
    numbers_ports: false,
    traces: false,
    has_page: false,
};

/// Returns the scope of revisions' pods. Only the revision label is kept, because no selector uses another label.
pub(crate) fn pods() -> PodScope {
    let watched = watcher::Config::default().labels(names::REVISION_UID);
    PodScope { namespaces: Namespaces::ALL, watched, keeps: |label| label == names::REVISION, tracks_failures: false }
}

pub(crate) fn reconcilers(wiring: Wiring, shutdown: &CancellationToken) -> Reconcilers {
    let measurements = Measurements::default();
    let front_end_queues: (Arc<dyn FrontEndQueues>, _) = (Arc::new(measurements.clone()), Namespaces::ALL);
    let parts = Parts::new(wiring, WorkQueue::new(), front_end_queues, shutdown);
    let objects = Arc::new(Objects::new(&parts.stores.index, measurements));
    let revisions = Arc::new(Revisions::new(&parts, objects.clone(), MERGED_WITHIN));
    let metric = metric::Controller { parts: parts.clone(), objects: objects.clone() };
    let queue = objects.measurements.0.clone();
    Reconcilers::new(parts, objects, PROFILE.kind, revisions)
        .with("Metric", queue, metric, |metric, key| async move { metric.reconcile(&key).await })
}

/// Checks the value of `ZEROSCALE_HPA`. Fails with the rule that it breaks.
pub(crate) fn check_hpa(value: &str) -> Result<(), &'static str> {
    match value {
        "" | "off" => Ok(()),
        "engine" => {
            Err("engine requires ZEROSCALE_MODE=standalone; in a Knative install, autoscaler-hpa serves class HPA")
        }
        _ => Err("must be engine or off"),
    }
}
