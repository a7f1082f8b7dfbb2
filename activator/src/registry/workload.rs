//! Workload, asleep or active.
//!
//! Most workloads of a large cluster are asleep. For such a workload only the data from discovery is stored. Its
//! [`Revision`], with queue, counts, series and a probing task, is created for the first request or the first pod
//! address. It is dropped if for [`UNUSED_MAX`] it was unused and had no pod.
//!
//! # Consistency
//!
//! One lock guards both the data and the revision. Events are applied to both, and a revision that is created later
//! starts with the data. A request gets the revision under that lock, and a revision in use is not dropped. So there
//! are never two at once.

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

/// Time that an unused revision without pods stays. Longer than a metrics scrape interval, because its series end with
/// it.
pub(super) const UNUSED_MAX: Duration = Duration::from_secs(300);

#[derive(Default)]
pub(super) struct Workload {
    state: Mutex<WorkloadState>,
}

#[derive(Default)]
struct WorkloadState {
    /// `None` if its addresses came first.
    spec: Option<Arc<Spec>>,
    /// `None` if there are no pods.
    pods: Option<Box<Listing>>,
    cluster_ip: Option<Box<Destination>>,
    activators: Activators,
    revision: Option<Arc<Revision>>,
    /// Time of the first check that found the revision unused; `None` after a use.
    unused: Option<Instant>,
    /// Wakes, once it had a revision.
    wakes: Option<Arc<Wakes>>,
}

impl Workload {
    pub(super) fn set_spec(&self, spec: Arc<Spec>, parts: &Parts) -> Option<Arc<Spec>> {
        let mut state = self.state.lock();
        let former = state.spec.replace(spec.clone());
        match &state.revision {
            Some(revision) if former.as_ref() != Some(&spec) => revision.apply(&spec, false),
            Some(_) => {}
            None if state.pods.is_some() => _ = state.active(parts),
            None => {}
        }
        former
    }

    /// Handles the deletion of the workload: waiting requests are refused; running requests continue.
    pub(super) fn delete(&self) {
        let mut state = self.state.lock();
        state.spec = None;
        if let Some(revision) = state.revision.take() {
            revision.delete();
        }
    }

    pub(super) fn set_pods(&self, listing: Listing, parts: &Parts) {
        let mut state = self.state.lock();
        state.pods = (!listing.is_empty()).then(|| Box::new(listing.clone()));
        match &state.revision {
            Some(revision) => revision.set_pods(listing),
            None if state.pods.is_some() => _ = state.active(parts),
            None => {}
        }
    }

    /// Sets this activator's place among those that receive the workload's traffic.
    pub(super) fn set_activators(&self, activators: Activators) {
        let mut state = self.state.lock();
        state.activators = activators;
        if let Some(revision) = &state.revision {
            revision.throttler.set_activators(activators);
        }
    }

    pub(super) fn activators(&self) -> Activators {
        self.state.lock().activators
    }

    /// Sets the address of the Service in front of its pods.
    pub(super) fn set_cluster_ip(&self, destination: Option<Destination>) {
        let mut state = self.state.lock();
        if let Some(revision) = &state.revision {
            revision.backends.put(|inbox| inbox.cluster_ip = Some(destination.clone()));
        }
        state.cluster_ip = destination.map(Box::new);
    }

    /// Returns its revision for a request, and creates it if necessary. Returns `None` if the workload was deleted, or
    /// if `accepts` rejects its spec.
    pub(super) fn active_revision(&self, parts: &Parts, accepts: impl FnOnce(&Spec) -> bool) -> Option<Arc<Revision>> {
        let mut state = self.state.lock();
        let is_accepted = state.spec.as_deref().is_some_and(accepts);
        if is_accepted { state.active(parts) } else { None }
    }

    pub(super) fn spec(&self) -> Option<Arc<Spec>> {
        self.state.lock().spec.clone()
    }

    pub(super) fn revision(&self) -> Option<Arc<Revision>> {
        self.state.lock().revision.clone()
    }

    /// Returns the addresses that only its pods have; none for pods in the host network.
    pub(super) fn addresses(&self) -> BTreeSet<IpAddr> {
        let state = self.state.lock();
        let own = state.spec.as_ref().filter(|spec| !spec.backend.host_network).and(state.pods.as_ref());
        own.into_iter().flat_map(|listing| listing.all()).map(|pod| pod.address().ip()).collect()
    }

    pub(super) fn is_unknown(&self) -> bool {
        let state = self.state.lock();
        let has_addresses = state.pods.is_some() || state.cluster_ip.is_some();
        state.spec.is_none() && !has_addresses && state.activators == Activators::Unknown
    }

    /// Drops its revision, if it has been unused for long enough.
    pub(super) fn drop_if_unused(&self, now: Instant) {
        let mut state = self.state.lock();
        let Some(revision) = &state.revision else { return };
        if state.pods.is_some() || Arc::strong_count(revision) > 1 || revision.stats.is_tracked() {
            state.unused = None;
        } else if now.duration_since(*state.unused.get_or_insert(now)) >= UNUSED_MAX
            && let Some(revision) = state.revision.take()
        {
            // Under the lock, because the next revision may have series of the same names.
            revision.end();
        }
    }
}

impl WorkloadState {
    fn active(&mut self, parts: &Parts) -> Option<Arc<Revision>> {
        self.unused = None;
        if let Some(revision) = &self.revision {
            return Some(revision.clone());
        }
        let spec = self.spec.as_ref()?;
        // Stored only if the workload's responses use them.
        let wakes = match spec.answers {
            Some(_) => self.wakes.get_or_insert_default().clone(),
            None => Arc::default(),
        };
        let (clock, memory, holders) =
            (parts.clock.clone(), parts.memory.share(share_number(&spec.key)), parts.holders.clone());
        let revision = Revision::new(spec, clock, &parts.metrics, memory, wakes, holders);
        revision.throttler.set_activators(self.activators);
        if let Some(destination) = self.cluster_ip.as_deref() {
            revision.backends.put(|inbox| inbox.cluster_ip = Some(Some(destination.clone())));
        }
        if let Some(listing) = self.pods.as_deref() {
            revision.set_pods(listing.clone());
        }
        backends::start(&revision, parts);
        Some(self.revision.insert(revision).clone())
    }
}
