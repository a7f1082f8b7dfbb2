//! The front end that replaces Knative Serving's own autoscaler.
//!
//! Knative's controller creates a PodAutoscaler for each revision, its webhook validates it, its queue-proxies count
//! requests, and its ServerlessService controller routes the traffic. This front end therefore validates nothing and
//! writes no traffic Service. Everything else is as upstream: defaults, rates, names.

pub mod bucket_services;
mod children;
pub(crate) mod metric;
mod parameters;
pub(crate) mod revisions;
pub(crate) mod statuses;
pub(crate) mod store;
pub(crate) mod wanted;

use crate::cluster::watches::Beside;
use crate::decisions::{Decisions, Profile};
use crate::engine::Wiring;
use crate::engine::parts::Parts;
use crate::pods::PodScope;
use crate::reconcile::{OwnController, Reconcilers, passes};
use common::names;
use common::write_rate::Rate;
use common_controller::WorkQueue;
use common_runtime::namespaces::Namespaces;
use kube::runtime::watcher;
use revisions::Revisions;
use statuses::{Autoscalers, MergedStatuses};
use std::sync::Arc;
use store::{Measurements, Objects};
use tokio_util::sync::CancellationToken;

/// Install in place of Knative Serving's own autoscaler.
#[derive(Debug)]
pub(crate) struct Knative;

impl Knative {
    const PROFILE: Profile = Profile {
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
}

impl Decisions for Knative {
    fn profile(&self) -> &'static Profile {
        &Self::PROFILE
    }

    /// Returns the scope of revisions' pods. Only the revision label is kept, because no selector uses another.
    fn pods(&self) -> PodScope {
        let watched = watcher::Config::default().labels(names::REVISION_UID);
        PodScope {
            namespaces: Namespaces::default(),
            watched,
            keeps: |label| label == names::REVISION,
            tracks_failures: false,
        }
    }

    fn reconcilers(&self, wiring: Wiring, shutdown: &CancellationToken) -> Reconcilers {
        let measurements = Measurements::default();
        let beside: (Arc<dyn Beside>, _) = (Arc::new(measurements.clone()), Namespaces::default());
        let parts = Parts::new(wiring, WorkQueue::new(), beside, shutdown);
        let objects = Arc::new(Objects::new(&parts.stores.index, measurements));
        let written = Arc::new(Autoscalers { objects: objects.clone(), writes: parts.writes.clone() });
        let statuses = Arc::new(MergedStatuses::new(written, parts.writes.decisions.clone()));
        let revisions = Arc::new(Revisions::new(&parts, objects.clone(), statuses));
        let metric = metric::Controller::new(&parts, objects.clone());
        let queue = objects.measurements.0.clone();
        let pass = passes(metric, |metric, key, _| async move { metric.reconcile(&key).await });
        let metrics = OwnController { kind: "Metric", queue, pass };
        Reconcilers::new(parts, objects, (Self::PROFILE.kind, revisions), vec![metrics])
    }
}

/// Checks the value of `ZEROSCALE_HPA`.
///
/// # Errors
/// The rule that the value breaks.
pub(crate) fn check_hpa(value: &str) -> Result<(), &'static str> {
    match value {
        "" | "off" => Ok(()),
        "engine" => Err("engine needs ZEROSCALE_MODE=standalone; here autoscaler-hpa serves class HPA"),
        _ => Err("must be engine or off"),
    }
}
