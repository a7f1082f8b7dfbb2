//! A workload, asleep or at work.
//!
//! Most workloads of a large cluster sleep. Of one that does, what was told of it is kept and nothing else. Its
//! [`Revision`], with queue, counts, series and a task that probes, is made for the first request, or for the first
//! address of a pod, and dropped when for [`REST`] nobody has asked for it and it has had no pod.
//!
//! # Nothing is lost between the two
//!
//! One lock stands around what is known and what works. What is told goes to both: a revision that is made later begins
//! with it. A request gets the revision under that lock, and one that anybody has is not dropped: whoever holds, sends or
//! reports has it, so there are never two at once.

use super::revision::{Revision, share_number};
use super::{Parts, backends};
use crate::answers::wakes::Wakes;
use crate::discovery::{Listing, Spec};
use activator_core::{Activators, Destination};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a revision without pods stays for the next request. Longer than metrics are asked for once: its series go
/// with it.
pub(super) const REST: Duration = Duration::from_secs(300);

/// What is known of one, and what works for it.
#[derive(Default)]
pub(super) struct Workload {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// None: addresses were told before it.
    spec: Option<Arc<Spec>>,
    /// None: there are no pods.
    pods: Option<Box<Listing>>,
    cluster_ip: Option<Box<Destination>>,
    activators: Activators,
    work: Work,
    /// Its wakes, once it had one.
    wakes: Option<Arc<Wakes>>,
}

/// What works for it.
#[derive(Default)]
struct Work {
    revision: Option<Arc<Revision>>,
    /// When it was first seen to be of no use; none: it was asked for since.
    unused: Option<Instant>,
}

impl Workload {
    /// It is this. Returns what it was.
    pub(super) fn set_spec(&self, spec: Arc<Spec>, parts: &Parts) -> Option<Arc<Spec>> {
        let mut state = self.state.lock();
        let former = state.spec.replace(spec.clone());
        match &state.work.revision {
            Some(revision) if former.as_ref() != Some(&spec) => revision.apply(&spec),
            Some(_) => {}
            None if state.pods.is_some() => _ = state.revision(parts),
            None => {}
        }
        former
    }

    /// It is no more: who waits is refused; what runs, runs on.
    pub(super) fn delete(&self) {
        let mut state = self.state.lock();
        state.spec = None;
        if let Some(revision) = std::mem::take(&mut state.work).revision {
            revision.delete();
        }
    }

    /// Its pods are these.
    pub(super) fn set_pods(&self, listing: Listing, parts: &Parts) {
        let mut state = self.state.lock();
        state.pods = (!listing.is_empty()).then(|| Box::new(listing.clone()));
        match &state.work.revision {
            Some(revision) => revision.set_pods(listing),
            None if state.pods.is_some() => _ = state.revision(parts),
            None => {}
        }
    }

    /// This activator's place among those that carry its traffic.
    pub(super) fn set_activators(&self, activators: Activators) {
        let mut state = self.state.lock();
        state.activators = activators;
        if let Some(revision) = &state.work.revision {
            revision.set_activators(activators);
        }
    }

    /// This activator's place among those to whom its clients are led.
    pub(super) fn activators(&self) -> Activators {
        self.state.lock().activators
    }

    /// The Service in front of its pods has this address.
    pub(super) fn set_cluster_ip(&self, destination: Option<Destination>) {
        let mut state = self.state.lock();
        if let Some(revision) = &state.work.revision {
            revision.set_cluster_ip(destination.clone());
        }
        state.cluster_ip = destination.map(Box::new);
    }

    /// Its revision for a request, made if there is none; nothing if it is no more, or if it is not what is `meant`.
    pub(super) fn at_work(&self, parts: &Parts, meant: impl FnOnce(&Spec) -> bool) -> Option<Arc<Revision>> {
        let mut state = self.state.lock();
        let is_meant = state.spec.as_deref().is_some_and(meant);
        if is_meant { state.revision(parts) } else { None }
    }

    /// What it is.
    pub(super) fn spec(&self) -> Option<Arc<Spec>> {
        self.state.lock().spec.clone()
    }

    /// Its revision, if there is one.
    pub(super) fn revision(&self) -> Option<Arc<Revision>> {
        self.state.lock().work.revision.clone()
    }

    /// The addresses that are its pods' own.
    pub(super) fn addresses(&self) -> BTreeSet<IpAddr> {
        let state = self.state.lock();
        let own = state.spec.as_ref().filter(|spec| !spec.backend.host_network).and(state.pods.as_ref());
        own.into_iter().flat_map(|listing| listing.all()).map(|pod| pod.address().ip()).collect()
    }

    /// Whether nothing is known.
    pub(super) fn is_unknown(&self) -> bool {
        let state = self.state.lock();
        let has_addresses = state.pods.is_some() || state.cluster_ip.is_some();
        state.spec.is_none() && !has_addresses && state.activators == Activators::Unknown
    }

    /// Drops its revision, if that has been of no use for long enough.
    pub(super) fn rest(&self, now: Instant) {
        let mut state = self.state.lock();
        let Some(revision) = &state.work.revision else { return };
        let is_used = state.pods.is_some() || Arc::strong_count(revision) > 1 || revision.stats.is_tracked();
        if state.work.rests(is_used, now)
            && let Some(revision) = std::mem::take(&mut state.work).revision
        {
            // Within the lock: the next one may have series of the same names.
            revision.end();
        }
    }
}

impl State {
    fn revision(&mut self, parts: &Parts) -> Option<Arc<Revision>> {
        self.work.unused = None;
        if let Some(revision) = &self.work.revision {
            return Some(revision.clone());
        }
        let spec = self.spec.as_deref()?;
        // Kept for those alone that show them.
        let wakes = match spec.answers {
            Some(_) => self.wakes.get_or_insert_default().clone(),
            None => Arc::default(),
        };
        let (clock, memory, holders) =
            (parts.clock.clone(), parts.memory.share(share_number(&spec.key)), parts.holders.clone());
        let revision = Revision::new(spec, clock, &parts.metrics, memory, wakes, holders);
        revision.set_activators(self.activators);
        if let Some(destination) = self.cluster_ip.as_deref() {
            revision.set_cluster_ip(Some(destination.clone()));
        }
        if let Some(listing) = self.pods.as_deref() {
            revision.set_pods(listing.clone());
        }
        backends::start(&revision, parts);
        Some(self.work.revision.insert(revision).clone())
    }
}

impl Work {
    /// Whether it is to be dropped now.
    fn rests(&mut self, is_used: bool, now: Instant) -> bool {
        if is_used {
            self.unused = None;
            return false;
        }
        now.duration_since(*self.unused.get_or_insert(now)) >= REST
    }
}
