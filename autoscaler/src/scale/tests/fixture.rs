//! Subjects, sources, pods and addresses of tests.

use super::metrics::DeciderMetrics;
use super::multiscaler::Sources;
use super::{CollectSpec, Requests, Subject, SubjectLabels};
use crate::collect::Collector;
use crate::ingest::attest::Attestations;
use crate::pods::{PodIndex, PodState};
use autoscaler_core::pod_counts::{CountedPod, Phase};
use common::annotations::{self, Annotations};
use common::config::AutoscalerConfig;
use common::scaling::{Aggregation, BurstCapacity, DeciderSpec};
use common_runtime::clock::Clock;
use common_runtime::resolve::Resolve;
use common_runtime::telemetry::Metrics;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Returns a plain pod's revision under default configuration: the activators are always in the path.
pub(crate) fn subject() -> Subject {
    let defaults = annotations::decider_spec(&Annotations::new(), &AutoscalerConfig::default(), 0, true);
    let spec = DeciderSpec { target_burst_capacity: BurstCapacity::Always, ..defaults };
    Subject { spec, labels: SubjectLabels::default() }
}

/// Returns sources without any data. Their pods are not listed yet.
pub(crate) fn sources(clock: Clock, telemetry: &Metrics) -> Sources {
    Sources {
        collector: Arc::new(Collector::new(clock.clone(), Requests::new())),
        pods: Arc::new(PodIndex::new(Requests::new())),
        attestations: Arc::new(Attestations::new(false)),
        clock,
        requests: Requests::new(),
        metrics: DeciderMetrics::new(telemetry),
        tracing: None,
    }
}

/// Returns the settings of a collection with default windows and without scrapes.
pub(crate) fn collect_spec() -> CollectSpec {
    CollectSpec {
        stable_window: Duration::from_secs(60),
        panic_window: Duration::from_secs(6),
        aggregation: Aggregation::Linear,
        scrape_target: None,
    }
}

/// Returns a ready pod with these labels, without an address.
pub(crate) fn ready_pod(labels: &[(&str, &str)]) -> PodState {
    PodState {
        labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        state: CountedPod { phase: Phase::Running, deleting: false, ready: true },
        address: None,
        started: None,
        cause: None,
        controller: None,
    }
}

/// Resolver that returns one address for every name.
pub(crate) struct FixedAddress(pub(crate) SocketAddr);

impl Resolve for FixedAddress {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(vec![self.0]) })
    }
}

/// Resolver of names that have no address until one is set. Addresses resolve to themselves.
#[derive(Clone, Default)]
pub(crate) struct Names(pub(crate) Arc<Mutex<HashMap<String, SocketAddr>>>);

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let found = match host.parse::<IpAddr>() {
            Ok(ip) => Some(SocketAddr::new(ip, port)),
            Err(_) => self.0.lock().get(host).copied(),
        };
        Box::pin(async move { found.map(|a| vec![a]).ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }
}
