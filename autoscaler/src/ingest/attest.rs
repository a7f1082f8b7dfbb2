//! Attestations of activators: they decide whether missing reports mean zero load.
//!
//! An activator without requests reports nothing, and neither does one that is cut off. Each of our activators
//! therefore attests every second that it is connected. [`Attestations::attested`] is true only if every activator
//! that Kubernetes reports ready has attested within [`ATTESTED_WITHIN`], by its pod's name or its address.
//!
//! # Edge cases
//!
//! - No activator is ready: there is no attestation at all, so the load is unknown.
//! - In a Knative install an activator may be upstream's, which never attests. An activator without an attestation for
//!   [`FIRST_ATTESTATION_WITHIN`] since it became ready counts as upstream's, and so do all before the first
//!   attestation. Upstream's rule applies to these: missing reports mean zero load. In standalone all activators are
//!   ours, and one without an attestation is not yet connected.

use common_runtime::watching::watch;
use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::{reflector, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum age of an attestation. Attestations arrive every second.
pub const ATTESTED_WITHIN: Duration = Duration::from_secs(3);
/// Maximum number of names kept, because any client may send them. When full, new names are ignored until old ones
/// expire.
const NAMES_MAX: usize = 1024;
/// Age at which a name is removed when room is needed.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Time after which a ready activator of ours must have attested.
const FIRST_ATTESTATION_WITHIN: Duration = Duration::from_secs(30);

/// Ready activator, as listed by `activator-service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyActivator {
    /// Name of its pod, if the endpoint refers to a pod.
    pub pod: Option<String>,
    /// IP address of the endpoint.
    pub address: String,
}

/// Attestations of all activators. The stat server records them, the deciders read them.
#[derive(Debug)]
pub struct Attestations {
    state: Mutex<AttestationState>,
    /// Set if an activator that never attested may be upstream's.
    upstream_possible: bool,
}

#[derive(Debug, Default)]
struct AttestationState {
    /// Time of the last attestation by each name.
    last_attestations: HashMap<String, Instant>,
    /// Ready activators, and the time at which each became ready.
    ready: Vec<(ReadyActivator, Instant)>,
    /// Set with the first attestation.
    has_attestations: bool,
}

impl Attestations {
    /// Creates an empty set. `upstream_possible`: the activators may be upstream's.
    pub fn new(upstream_possible: bool) -> Self {
        Self { state: Mutex::default(), upstream_possible }
    }

    /// Records an attestation at `now` by an activator of this name (its pod's, or its address).
    pub fn record(&self, name: &str, now: Instant) {
        let mut state = self.state.lock();
        state.has_attestations = true;
        if let Some(at) = state.last_attestations.get_mut(name) {
            *at = now.max(*at);
            return;
        }
        if state.last_attestations.len() >= NAMES_MAX {
            state.last_attestations.retain(|_, at| now.saturating_duration_since(*at) < FORGET_AFTER);
        }
        if state.last_attestations.len() < NAMES_MAX {
            state.last_attestations.insert(name.to_owned(), now);
        }
    }

    /// Replaces the list of ready activators, as of `now`.
    pub fn set_ready(&self, ready: Vec<ReadyActivator>, now: Instant) {
        let mut state = self.state.lock();
        let before = std::mem::take(&mut state.ready);
        let with_since = |activator: ReadyActivator| {
            let known = before.iter().find(|(known, _)| *known == activator);
            (activator, known.map_or(now, |(_, since)| *since))
        };
        state.ready = ready.into_iter().map(with_since).collect();
    }

    /// Returns whether missing reports at `now` mean that there is no load.
    pub fn attested(&self, now: Instant) -> bool {
        let state = self.state.lock();
        if !state.has_attestations && self.upstream_possible {
            return true;
        }
        let fresh = |name: &str| {
            state.last_attestations.get(name).is_some_and(|at| now.saturating_duration_since(*at) <= ATTESTED_WITHIN)
        };
        let is_upstreams = |ready: &ReadyActivator, since: Instant| {
            let is_silent = now.saturating_duration_since(since) > FIRST_ATTESTATION_WITHIN;
            // An address may belong to another pod later.
            let name = ready.pod.as_ref().unwrap_or(&ready.address);
            self.upstream_possible && is_silent && !state.last_attestations.contains_key(name)
        };
        let attests = |ready: &ReadyActivator| ready.pod.as_deref().is_some_and(fresh) || fresh(&ready.address);
        !state.ready.is_empty()
            && state.ready.iter().all(|(ready, since)| attests(ready) || is_upstreams(ready, *since))
    }
}

/// Keeps the list of ready activators current from the EndpointSlices of `activator-service`, until `shutdown`. While
/// the API server is unreachable, the last list stays. If a new activator is missing from it, nothing changes; if a
/// former one is still in it, the load is unknown. In neither case does a busy service look idle.
pub async fn watch_activators(
    client: Client,
    namespace: String,
    attestations: Arc<Attestations>,
    shutdown: CancellationToken,
) {
    let api: Api<EndpointSlice> = Api::namespaced(client, &namespace);
    let selector = format!("kubernetes.io/service-name={}", common::names::ACTIVATOR_SERVICE);
    let (slices, writer) = reflector::store();
    let events = watch(api, watcher::Config::default().labels(&selector)).map(Ok::<_, watcher::Error>);
    let mut events = pin!(reflector(writer, events));
    while let Some(Some(_)) = shutdown.run_until_cancelled(events.next()).await {
        let mut all: Vec<_> = slices.state().iter().flat_map(|slice| ready(slice)).collect();
        all.sort_by(|a, b| a.address.cmp(&b.address));
        all.dedup();
        attestations.set_ready(all, Instant::now());
    }
}

/// Returns the ready endpoints of a slice. Unspecified readiness counts as ready, as in Kubernetes.
fn ready(slice: &EndpointSlice) -> Vec<ReadyActivator> {
    let is_ready = |ready: Option<bool>| ready.unwrap_or(true);
    slice
        .endpoints
        .iter()
        .flatten()
        .filter(|endpoint| is_ready(endpoint.conditions.as_ref().and_then(|conditions| conditions.ready)))
        .flat_map(|endpoint| {
            let pod = endpoint.target_ref.as_ref().and_then(|target| target.name.clone());
            endpoint.addresses.iter().map(move |address| ReadyActivator { pod: pod.clone(), address: address.clone() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activator(pod: Option<&str>, address: &str) -> ReadyActivator {
        ReadyActivator { pod: pod.map(str::to_owned), address: address.to_owned() }
    }

    /// Goal: missing reports mean zero only if every ready activator attested within three seconds, by its name or
    /// address.
    #[tokio::test(start_paused = true)]
    async fn missing_reports_mean_zero_only_while_every_ready_activator_attests() {
        let attestations = Attestations::new(false);
        let now = Instant::now();
        let at = |secs: u64| now + Duration::from_secs(secs);
        assert!(!attestations.attested(now), "no activator is ready");
        attestations.set_ready(vec![activator(Some("a"), "10.0.0.1"), activator(None, "10.0.0.2")], now);
        assert!(!attestations.attested(now), "no activator has attested");
        attestations.record("a", at(0));
        assert!(!attestations.attested(at(0)), "one of two");
        attestations.record("10.0.0.2", at(1));
        assert!(attestations.attested(at(1)));
        assert!(attestations.attested(at(3)), "exactly three seconds ago is recent");
        assert!(!attestations.attested(at(4)), "the first one no longer attests");
        attestations.record("a", at(4));
        assert!(attestations.attested(at(4)));
        attestations.set_ready(vec![activator(Some("a"), "10.0.0.1")], at(5));
        assert!(attestations.attested(at(7)), "the other one is no longer ready");
        attestations.set_ready(vec![], at(7));
        assert!(!attestations.attested(at(7)));
    }

    /// Goal: if activators may be upstream's, missing reports of such a one mean zero, before and after other
    /// activators attest. Those of our own do not, neither after their first attestation nor while it may still come.
    #[tokio::test(start_paused = true)]
    async fn upstreams_rule_applies_to_activators_that_never_attest() {
        let attestations = Attestations::new(true);
        let now = Instant::now();
        let at = |secs: u64| now + Duration::from_secs(secs);
        let (ours, theirs) = (activator(Some("ours"), "10.0.0.1"), activator(Some("theirs"), "10.0.0.2"));
        attestations.set_ready(vec![theirs.clone()], at(0));
        assert!(attestations.attested(at(0)), "no activator has ever attested");
        attestations.set_ready(vec![ours.clone(), theirs.clone()], at(60));
        attestations.record("ours", at(60));
        assert!(attestations.attested(at(61)), "one of each");
        assert!(!attestations.attested(at(64)), "ours no longer attests");
        // Replaced again: another pod at the same address.
        let back = activator(Some("back"), "10.0.0.1");
        attestations.set_ready(vec![back, theirs], at(70));
        assert!(!attestations.attested(at(80)), "it may be ours, and attest soon");
        assert!(attestations.attested(at(101)), "it has not attested in time");
    }

    /// Goal: names that any client may send cannot fill the memory, and do not displace known activators.
    #[tokio::test(start_paused = true)]
    async fn unknown_names_do_not_displace_activators() {
        let (attestations, now) = (Attestations::new(false), Instant::now());
        attestations.set_ready(vec![activator(Some("a"), "10.0.0.1")], now);
        attestations.record("a", now);
        for name in 0..NAMES_MAX * 2 {
            attestations.record(&name.to_string(), now);
        }
        let count = || attestations.state.lock().last_attestations.len();
        assert_eq!(count(), NAMES_MAX);
        attestations.record("a", now + Duration::from_secs(50));
        assert!(attestations.attested(now + Duration::from_secs(50)));
        attestations.record("new", now + Duration::from_secs(70));
        assert_eq!(count(), 2, "expired names are removed when room is needed");
    }
}
