//! Who has been heard, and so whether silence means that there is no load.
//!
//! An activator that carries no requests reports nothing, and neither does one that is cut off. Each of ours therefore
//! says every second that it is there. [`Attestations::attested`] is true only if every activator that Kubernetes calls
//! ready has said so within [`HEARD_WITHIN`], by the name of its pod or by its address.
//!
//! # Odd cases
//!
//! - No activator is ready: nobody can vouch for anything, so the load is unknown.
//! - In the drop-in an activator may be upstream's, which never attest: one that has not spoken for [`OURS_SPEAK_WITHIN`]
//!   since it is ready is taken for one, and so are all before anybody has spoken. Upstream's rule applies to these: silence
//!   is zero. In standalone the activators are ours, and one that has not spoken yet is not one that never will.

use common_runtime::watching::watch;
use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How recent an attestation must be. They come every second.
pub const HEARD_WITHIN: Duration = Duration::from_secs(3);
/// Names kept at most: the socket is open to anybody. Beyond it a new name is ignored until old ones have gone.
const NAMES_MAX: usize = 1024;
/// A name not heard for so long is forgotten when room is needed.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// An activator of ours has spoken by then.
const OURS_SPEAK_WITHIN: Duration = Duration::from_secs(30);

/// An activator that is ready to serve, as `activator-service` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyActivator {
    /// Its pod's name, where the endpoint refers to a pod.
    pub pod: Option<String>,
    /// Its address.
    pub address: String,
}

/// Attestations of all activators. Shared by the stat server, which feeds it, and the deciders, which ask.
#[derive(Debug)]
pub struct Attestations {
    state: Mutex<State>,
    /// Whether an activator that never attested is taken for upstream's.
    upstream_possible: bool,
}

#[derive(Debug, Default)]
struct State {
    heard: HashMap<String, Instant>,
    /// And since when each is.
    ready: Vec<(ReadyActivator, Instant)>,
    ever: bool,
}

impl ReadyActivator {
    /// By which it is known for sure: an address may be another's later.
    fn name(&self) -> &str {
        self.pod.as_deref().unwrap_or(&self.address)
    }
}

impl Attestations {
    /// Nobody heard, nobody ready. `upstream_possible`: whether the activators may be upstream's.
    pub fn new(upstream_possible: bool) -> Self {
        Self { state: Mutex::default(), upstream_possible }
    }

    /// An activator of this name (its pod's, or its address) has spoken at `now`.
    pub fn heard(&self, name: &str, now: Instant) {
        let mut state = self.state.lock();
        state.ever = true;
        if let Some(at) = state.heard.get_mut(name) {
            *at = now.max(*at);
            return;
        }
        if state.heard.len() >= NAMES_MAX {
            state.heard.retain(|_, at| now.saturating_duration_since(*at) < FORGET_AFTER);
        }
        if state.heard.len() < NAMES_MAX {
            state.heard.insert(name.to_owned(), now);
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

    /// Whether silence at `now` means that there is no load.
    pub fn attested(&self, now: Instant) -> bool {
        let state = self.state.lock();
        if !state.ever && self.upstream_possible {
            return true;
        }
        let fresh =
            |name: &str| state.heard.get(name).is_some_and(|at| now.saturating_duration_since(*at) <= HEARD_WITHIN);
        let is_upstreams = |ready: &ReadyActivator, since: Instant| {
            let unheard = now.saturating_duration_since(since) > OURS_SPEAK_WITHIN;
            self.upstream_possible && unheard && !state.heard.contains_key(ready.name())
        };
        let attests = |ready: &ReadyActivator| ready.pod.as_deref().is_some_and(fresh) || fresh(&ready.address);
        !state.ready.is_empty()
            && state.ready.iter().all(|(ready, since)| attests(ready) || is_upstreams(ready, *since))
    }
}

/// Keeps the list of ready activators up to date from the EndpointSlices of `activator-service`, until `shutdown`.
/// While the API server is away the last known list stays: an activator that is missing from it is not needed, one that
/// has gone makes the load unknown, and neither invents an idle service.
pub async fn watch_activators(
    client: Client,
    namespace: String,
    attestations: Arc<Attestations>,
    shutdown: CancellationToken,
) {
    let api: Api<EndpointSlice> = Api::namespaced(client, &namespace);
    let selector = format!("kubernetes.io/service-name={}", common::names::ACTIVATOR_SERVICE);
    let mut events = watch(api, watcher::Config::default().labels(&selector));
    let mut slices: HashMap<String, Vec<ReadyActivator>> = HashMap::new();
    let mut listing = HashMap::new();
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            Some(watcher::Event::Init) => listing.clear(),
            Some(watcher::Event::InitApply(slice)) => {
                listing.insert(slice.name_any(), ready(&slice));
            }
            Some(watcher::Event::InitDone) => slices = std::mem::take(&mut listing),
            Some(watcher::Event::Apply(slice)) => {
                slices.insert(slice.name_any(), ready(&slice));
            }
            Some(watcher::Event::Delete(slice)) => {
                slices.remove(&slice.name_any());
            }
            None => return,
        }
        let mut all: Vec<_> = slices.values().flatten().cloned().collect();
        all.sort_by(|a, b| a.address.cmp(&b.address));
        all.dedup();
        attestations.set_ready(all, Instant::now());
    }
}

/// The ready endpoints of a slice. Readiness that is not stated counts as ready, as Kubernetes has it.
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

    /// Goal: silence is believed only while every ready activator has spoken within three seconds, by name or address.
    #[tokio::test(start_paused = true)]
    async fn silence_counts_only_while_every_ready_activator_attests() {
        let attestations = Attestations::new(false);
        let now = Instant::now();
        let at = |secs: u64| now + Duration::from_secs(secs);
        assert!(!attestations.attested(now), "nobody is ready");
        attestations.set_ready(vec![activator(Some("a"), "10.0.0.1"), activator(None, "10.0.0.2")], now);
        assert!(!attestations.attested(now), "nobody was heard");
        attestations.heard("a", at(0));
        assert!(!attestations.attested(at(0)), "one of two");
        attestations.heard("10.0.0.2", at(1));
        assert!(attestations.attested(at(1)));
        assert!(attestations.attested(at(3)), "exactly three seconds ago is recent");
        assert!(!attestations.attested(at(4)), "the first one has fallen silent");
        attestations.heard("a", at(4));
        assert!(attestations.attested(at(4)));
        attestations.set_ready(vec![activator(Some("a"), "10.0.0.1")], at(5));
        assert!(attestations.attested(at(7)), "who is no longer ready is not needed");
        attestations.set_ready(vec![], at(7));
        assert!(!attestations.attested(at(7)));
    }

    /// Goal: where activators may be upstream's, their silence counts, whoever else has spoken, and before or after it; that
    /// of ours does not, once they have spoken, nor while they may be about to.
    #[tokio::test(start_paused = true)]
    async fn upstreams_rule_holds_for_whoever_never_speaks() {
        let attestations = Attestations::new(true);
        let now = Instant::now();
        let at = |secs: u64| now + Duration::from_secs(secs);
        let (ours, theirs) = (activator(Some("ours"), "10.0.0.1"), activator(Some("theirs"), "10.0.0.2"));
        attestations.set_ready(vec![theirs.clone()], at(0));
        assert!(attestations.attested(at(0)), "nobody has ever spoken");
        attestations.set_ready(vec![ours.clone(), theirs.clone()], at(60));
        attestations.heard("ours", at(60));
        assert!(attestations.attested(at(61)), "one of each");
        assert!(!attestations.attested(at(64)), "ours has fallen silent");
        // Swapped back: another pod, at the same address.
        let back = activator(Some("back"), "10.0.0.1");
        attestations.set_ready(vec![back, theirs], at(70));
        assert!(!attestations.attested(at(80)), "it may be ours, and about to speak");
        assert!(attestations.attested(at(101)), "it never does");
    }

    /// Goal: names from the open socket cannot fill the memory, and do not push out whom we know.
    #[tokio::test(start_paused = true)]
    async fn strangers_do_not_displace_activators() {
        let (attestations, now) = (Attestations::new(false), Instant::now());
        attestations.set_ready(vec![activator(Some("a"), "10.0.0.1")], now);
        attestations.heard("a", now);
        for stranger in 0..NAMES_MAX * 2 {
            attestations.heard(&stranger.to_string(), now);
        }
        assert_eq!(attestations.state.lock().heard.len(), NAMES_MAX);
        attestations.heard("a", now + Duration::from_secs(50));
        assert!(attestations.attested(now + Duration::from_secs(50)));
        attestations.heard("new", now + Duration::from_secs(70));
        assert_eq!(attestations.state.lock().heard.len(), 2, "the silent are forgotten when room is needed");
    }
}
