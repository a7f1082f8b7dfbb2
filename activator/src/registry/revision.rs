//! Live state of one revision: everything that its requests need, behind one pointer.
//!
//! It exists while it is needed ([`super::workload`]), and until its last request has ended. Edits change it in place,
//! so waiting requests keep waiting.

use crate::answers::Answers;
use crate::answers::wakes::Wakes;
use crate::discovery::{Listing, PodPorts, Spec};
use crate::holders::{Holders, Link};
use crate::metrics::cold_start::ColdStart;
use crate::metrics::{Metrics, RevisionMetrics};
use crate::refusal::{Refusal, TimedOut};
use crate::registry::learned_http::LearnedHttp;
use crate::registry::observations::UnreportedObservations;
use crate::registry::probe_inbox::ProbeInbox;
use activator_core::Destination;
use activator_core::accounting::{Clock, RevisionStats};
use activator_core::breaker::AdmissionError;
use activator_core::throttler::Throttler;
use activator_net::{PodObserver, Share};
use arc_swap::{ArcSwap, ArcSwapOption};
use common::RevisionKey;
use common::backend::Backend;
use common::stat::Observations;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::time::Instant;

/// First number of a workload; lower numbers are for connections without a workload.
const NUMBERS_FROM: u64 = 16;

/// Workload number of the connections between activators.
pub(crate) const LINKS: u64 = 1;

pub(crate) struct Revision {
    pub(crate) key: RevisionKey,
    /// Number of its workload, for the shares of connections.
    pub(crate) number: u64,
    /// Admission and choice of a pod.
    pub(crate) throttler: Arc<Throttler>,
    pub(crate) stats: Arc<RevisionStats>,
    pub(crate) metrics: RevisionMetrics,
    pub(crate) memory: Share,
    /// Set while the stat sink has it in the list of reporting revisions.
    pub(crate) reporting: AtomicBool,
    /// Set once it was deleted: another revision may have its name.
    gone: AtomicBool,
    live: ArcSwap<Live>,
    /// Ports of its pods, if they have several.
    pub(super) pod_ports: ArcSwapOption<BTreeMap<IpAddr, PodPorts>>,
    /// Hash of its pods' addresses, to detect another set of pods.
    pods_hash: AtomicU64,
    timeline: Mutex<Timeline>,
    pub(crate) observations: UnreportedObservations,
    pub(super) backends: Arc<ProbeInbox>,
    /// Responses without a pod, if configured.
    answers: ArcSwapOption<Answers>,
    /// Wakes, for these responses. They outlive the revision.
    pub(crate) wakes: Arc<Wakes>,
    /// HTTP version of the pods on the shared ports, if it was learned.
    pub(super) learned: LearnedHttp,
    /// Shared limits, if limits may be shared with other activators.
    holders: Option<Arc<Holders>>,
    /// Link for its shared limit, if it has a limit that may be shared.
    link: ArcSwapOption<Link>,
    /// Addresses of its pods, if limits may be shared.
    listed: Mutex<BTreeSet<Destination>>,
}

/// Parts that an edit changes and a request reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Live {
    pub(crate) spec: Arc<Spec>,
    pub(crate) bounds: Bounds,
}

/// Timeouts of a revision's exchanges; `None`: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Wait for a pod.
    pub(crate) wait: Option<Duration>,
    /// Whole exchange.
    pub(crate) total: Option<Duration>,
    /// Time until the response head.
    pub(crate) response_start: Option<Duration>,
    /// Time without progress.
    pub(crate) idle: Option<Duration>,
    /// The last three start at the request's arrival, as in Knative. Otherwise they start when a pod has the request.
    pub(crate) from_arrival: bool,
}

impl Bounds {
    pub(crate) fn limit_exchange(&self) -> bool {
        self.total.is_some() || self.response_start.is_some() || self.idle.is_some()
    }

    /// Returns the refusal of a request that has waited for a pod since then, if it has waited too long.
    pub(crate) fn waited_out(&self, since: Instant) -> Option<Refusal> {
        let bound = self.wait.filter(|bound| since.elapsed() >= *bound)?;
        Some(TimedOut::Wait(bound).into())
    }
}

/// Steps of the latest wake.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timeline {
    /// Time at which the first signal was written to the socket.
    pub(crate) signalled: Option<Instant>,
    /// Time at which the first address was listed.
    pub(crate) address_known: Option<Instant>,
    /// Time at which the first destination was published.
    pub(crate) probed: Option<Instant>,
    /// Wake that was logged last, identified by its `probed`.
    pub(crate) logged: Option<Instant>,
}

/// Returns the number of a workload for the shares of connections. The hash has a random key, so a user cannot choose a
/// name that gets the number of another workload.
pub(crate) fn share_number(key: &RevisionKey) -> u64 {
    static NUMBERS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    NUMBERS.hash_one(key).max(NUMBERS_FROM)
}

impl Revision {
    pub(crate) fn new(
        spec: &Arc<Spec>,
        clock: Clock,
        metrics: &Metrics,
        memory: Share,
        wakes: Arc<Wakes>,
        holders: Option<Arc<Holders>>,
    ) -> Arc<Self> {
        let concurrency = spec.backend.container_concurrency;
        let revision = Arc::new(Self {
            key: spec.key.clone(),
            number: share_number(&spec.key),
            throttler: Throttler::new(concurrency, spec.backend.max_held),
            stats: RevisionStats::new(clock),
            metrics: metrics.revision(spec),
            memory,
            reporting: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            live: ArcSwap::from_pointee(Live::from_spec(spec)),
            pod_ports: ArcSwapOption::empty(),
            pods_hash: AtomicU64::new(0),
            timeline: Mutex::default(),
            observations: UnreportedObservations::default(),
            backends: Arc::default(),
            answers: ArcSwapOption::empty(),
            wakes,
            learned: LearnedHttp::default(),
            holders,
            link: ArcSwapOption::empty(),
            listed: Mutex::default(),
        });
        revision.apply(spec, true);
        revision
    }

    /// Applies a spec. An edit affects no waiting or running request, except that requests waiting for a failing
    /// revision are refused. `fresh`: no pod was ever listed.
    pub(crate) fn apply(&self, spec: &Arc<Spec>, fresh: bool) {
        self.live.store(Arc::new(Live::from_spec(spec)));
        let former = self.answers.load_full();
        if spec.answers.is_some() || former.is_some() {
            let updated = |answers| Arc::new(Answers::new(answers).with_addresses_of(former.as_deref()));
            self.answers.store(spec.answers.as_deref().map(updated));
        }
        self.throttler.set_concurrency(spec.backend.container_concurrency);
        self.throttler.set_max_held(spec.backend.max_held);
        self.share_limit(spec.backend.container_concurrency, fresh);
        let failing = spec.backend.failing.as_deref().map(|reason| AdmissionError::Failing { reason: reason.into() });
        let refusal = if spec.backend.paused { Some(AdmissionError::Paused) } else { failing };
        self.throttler.refuse_waiting(refusal);
        self.backends.put(|inbox| inbox.spec = Some(spec.clone()));
        self.wakes.notify();
    }

    /// Starts, changes or stops the sharing of its limit with other activators, if limits may be shared.
    fn share_limit(&self, limit: u32, fresh: bool) {
        let Some(holders) = &self.holders else { return };
        match (self.link.load_full(), limit) {
            (None, 0) => {}
            (Some(link), 0) => {
                self.link.store(None);
                holders.exit(&link);
            }
            (Some(link), limit) => link.set_limit(limit),
            (None, limit) => {
                let link = holders.enter(&self.key, &self.throttler, fresh);
                link.set_limit(limit);
                if !fresh {
                    link.set_pods(self.listed.lock().clone());
                }
                self.link.store(Some(link));
            }
        }
    }

    pub(crate) fn link(&self) -> arc_swap::Guard<Option<Arc<Link>>> {
        self.link.load()
    }

    pub(crate) fn set_pods(&self, mut listing: Listing) {
        let ports = std::mem::take(&mut listing.ports);
        if !ports.is_empty() || self.pod_ports.load().is_some() {
            self.pod_ports.store((!ports.is_empty()).then(|| Arc::new(ports)));
        }
        let hashed = listing.all().map(|pod| BuildHasherDefault::<DefaultHasher>::default().hash_one(pod));
        self.pods_hash.store(hashed.fold(0, u64::wrapping_add), Ordering::Relaxed);
        if self.holders.is_some() {
            let listed: BTreeSet<Destination> = listing.all().cloned().collect();
            if let Some(link) = &*self.link.load() {
                link.set_pods(listed.clone());
            }
            *self.listed.lock() = listed;
        }
        self.backends.put(|inbox| inbox.listing = Some(listing));
    }

    /// Handles the deletion of the revision: waiting requests are refused; running requests continue.
    pub(crate) fn delete(&self) {
        self.throttler.refuse_waiting(Some(AdmissionError::Gone));
        self.gone.store(true, Ordering::Release);
        self.wakes.notify();
        self.end();
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Ends its task, the sharing of its limit, and its metric series.
    pub(crate) fn end(&self) {
        self.backends.put(|inbox| inbox.closed = true);
        if let (Some(holders), Some(link)) = (&self.holders, self.link.swap(None)) {
            holders.exit(&link);
        }
        self.metrics.forget();
    }

    /// Takes an unreachable pod out of use at once, and has it probed again.
    pub(crate) fn take_out(&self, destination: &Destination, cause: &str) {
        if self.throttler.mark_failed(destination) {
            tracing::warn!(revision = %self.key, pod = %destination, cause, "the pod is taken out of use");
        }
        self.backends.put(|inbox| _ = inbox.failed.insert(destination.clone()));
    }

    pub(crate) fn answers(&self) -> Option<Arc<Answers>> {
        self.answers.load().as_ref().cloned()
    }

    pub(crate) fn live(&self) -> arc_swap::Guard<Arc<Live>> {
        self.live.load()
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.live.load().bounds
    }

    /// Returns the reason why it cannot be woken, if it has no pod and cannot get one.
    pub(crate) fn wake_refused(&self) -> Option<Arc<str>> {
        self.live.load().spec.backend.wake_refused.as_deref().filter(|_| self.is_cold()).map(Arc::from)
    }

    /// Returns the reason why it does not wake, for waiting pages.
    pub(crate) fn cause(&self) -> Option<Arc<str>> {
        let Backend { failing, wake_refused, .. } = &self.live.load().spec.backend;
        failing.as_deref().or(wake_refused.as_deref()).filter(|_| self.is_cold()).map(Arc::from)
    }

    /// Reports whether no pod can take requests.
    pub(crate) fn is_cold(&self) -> bool {
        self.throttler.is_cold()
    }

    pub(crate) fn timeline(&self) -> Timeline {
        *self.timeline.lock()
    }

    pub(crate) fn record_step<T>(&self, step: impl FnOnce(&mut Timeline) -> T) -> T {
        step(&mut self.timeline.lock())
    }

    /// Reports the end of a wake for a request that arrived at `received`. The first of the waiting requests logs it,
    /// once.
    pub(crate) fn report_wake(&self, received: Instant, released: Instant, first_byte: Instant) -> ColdStart {
        let timeline = self.timeline();
        let cold = ColdStart {
            key: self.key.clone(),
            received,
            signalled: timeline.signalled,
            address_known: timeline.address_known.unwrap_or(received),
            probed: timeline.probed.unwrap_or(released),
            released,
            first_byte,
        };
        if self.record_step(|timeline| std::mem::replace(&mut timeline.logged, timeline.probed) != timeline.probed) {
            cold.log();
            self.observations.answered(&cold);
        }
        self.metrics.notify(&cold);
        cold
    }

    /// Records a refused request that arrived at `received`. If the request waited for a pod, its wake failed.
    pub(crate) fn record_refusal(&self, received: Instant, refusal: &Refusal) {
        let is_wake = matches!(refusal, Refusal::Timeout(_) | Refusal::Unwoken { .. } | Refusal::Failing { .. });
        if is_wake && self.is_cold() {
            let (Timeline { signalled, address_known, .. }, now) = (self.timeline(), Instant::now());
            let address_known = address_known.filter(|known| *known >= received).unwrap_or(now);
            let key = self.key.clone();
            let cold =
                ColdStart { key, received, signalled, address_known, probed: now, released: now, first_byte: now };
            self.observations.failed(&cold, &refusal.to_string());
        }
    }

    pub(crate) fn pods_hash(&self) -> u64 {
        self.pods_hash.load(Ordering::Relaxed)
    }

    pub(super) fn take_observations(&self) -> Option<Box<Observations>> {
        let [waited, waiting] = self.metrics.waiting();
        self.observations.take(waited, waiting, Instant::now())
    }
}

impl Drop for Revision {
    fn drop(&mut self) {
        self.backends.put(|inbox| inbox.closed = true);
    }
}

impl PodObserver for Revision {
    fn pod_doubted(&self, pod: SocketAddr) {
        self.throttler.mark_failed(&pod.into());
    }

    /// Restores the pod, unless a request failed there meanwhile.
    fn pod_trusted(&self, pod: SocketAddr) {
        self.throttler.restore(&pod.into());
    }

    fn pod_failed(&self, pod: SocketAddr, cause: &str) {
        self.take_out(&pod.into(), cause);
    }
}

impl Live {
    fn from_spec(spec: &Arc<Spec>) -> Self {
        let millis = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
        Self {
            spec: spec.clone(),
            bounds: Bounds {
                wait: millis(spec.backend.wake_timeout_ms),
                total: millis(spec.backend.timeout_ms).or(millis(spec.backend.request_timeout_ms)),
                response_start: millis(spec.backend.response_start_timeout_ms),
                idle: millis(spec.backend.idle_timeout_ms),
                from_arrival: spec.backend.timeout_ms > 0,
            },
        }
    }

    /// Reports whether it cannot wake: its pods crash-loop, or it is paused without pods.
    pub(crate) fn is_failing(&self) -> bool {
        self.spec.backend.failing.is_some() || self.spec.backend.paused
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;
    use activator_net::Memory;
    use common::time::Timestamp;
    use common_runtime::environment::Mode;

    /// Returns `ns/app` without pods, with its backend modified by `change`.
    pub(crate) fn revision(change: impl FnOnce(&mut Backend)) -> Arc<Revision> {
        let mut backend = Backend::plain("app");
        change(&mut backend);
        let start = Instant::now();
        let clock = Arc::new(move || Timestamp::default() + start.elapsed());
        let metrics = Metrics::new(&common_runtime::telemetry::Metrics::default(), Mode::Standalone, None);
        let spec = Arc::new(Spec::standalone("ns", "app", backend));
        Revision::new(&spec, clock, &metrics, Memory::new(None).share(1), Arc::default(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::Port;
    use common::backend::Protocol;
    use common::ports::PortId;
    use common_api::zeroscaler::PortProtocol;

    /// Goal: the protocol of a port is the declared one, regardless of the first port; else the learned one; else the
    /// one from hints. gRPC uses HTTP/2. Behind a queue-proxy all ports are the same.
    #[test]
    fn a_request_is_sent_in_the_protocol_of_its_port() {
        let port = |port, protocol, spoken| {
            let id = PortId { name: String::new(), port };
            Port { id, protocol, wake_after: None, pod_port: None, spoken }
        };
        let (h2c, http1) = (Protocol::H2c, Protocol::Http1);
        let ports: Box<[_]> = vec![
            port(50_051, PortProtocol::H2c, None),
            port(80, PortProtocol::Http1, None),
            port(81, PortProtocol::Auto, None),
            port(82, PortProtocol::Auto, Some(h2c)),
        ]
        .into();
        let backend = |queue_proxy| Backend { protocol: Protocol::H2c, queue_proxy, ..Backend::plain("app") };
        let live = |queue_proxy| {
            let spec = Spec::standalone("ns", "app", backend(queue_proxy));
            Live::from_spec(&Arc::new(Spec { ports: ports.clone(), ..spec }))
        };
        let get = || http::Request::get("/");
        let (upgrade, grpc) = (("upgrade", "websocket"), ("content-type", "application/grpc+proto"));
        let rows = [
            (None, get(), None, (h2c, false)),
            (Some(50_051), get(), Some(http1), (h2c, false)),
            (Some(80), get(), Some(h2c), (http1, false)),
            (Some(81), get(), None, (http1, true)),
            (Some(81), get(), Some(h2c), (h2c, true)),
            (Some(82), get(), None, (h2c, true)),
            (Some(82), get(), Some(http1), (http1, true)),
            (Some(82), get().header(upgrade.0, upgrade.1), None, (http1, false)),
            (Some(50_051), get().method("POST").header(grpc.0, grpc.1), None, (h2c, false)),
            (Some(80), get().method("POST").header(grpc.0, grpc.1), None, (h2c, true)),
            (Some(81), get().method("POST").header(grpc.0, grpc.1), Some(http1), (h2c, true)),
            (Some(81), get().method("POST").header(grpc.0, "application/grpc-web"), None, (http1, true)),
        ];
        for (number, request, learned, expected) in rows {
            let port = number.and_then(|number| ports.iter().find(|port| port.id.port == number));
            let request = request.body(()).expect("a request");
            assert_eq!(live(false).protocol_for(&request, port, learned), expected, "{request:?} {port:?}");
            assert_eq!(live(true).protocol_for(&request, port, learned), (h2c, false), "{request:?} {port:?}");
        }
    }
}
