//! Handover of a returned Service from our EndpointSlices to those of Kubernetes.
//!
//! Once a Service has its selector back, the controller of Kubernetes creates slices for it, milliseconds or, if that
//! controller is busy, seconds later. Until then its clients have only our slices. Our slices therefore stay until
//! those of Kubernetes have as many ready addresses as the private Service, which selects the workload's pods. They
//! stay for at most [`WAIT_MAX`], because Kubernetes may never create slices: it creates none in a terminating
//! namespace, and the selector may select other pods.
//!
//! A client that keeps a connection to an activator follows no slice. While the ZeroScaler is being deleted, activators
//! close such connections once no slice leads to them: with the next response, or when the connection is idle. Requests
//! on a connection that outlives the ZeroScaler are rejected. The ZeroScaler therefore stays for [`RECONNECT_TIME`]
//! after the slices of Kubernetes are there.

use crate::standalone::traffic::adopt::{needs_adoption, unfit};
use crate::standalone::traffic::slices;
use common::RevisionKey as Key;
use dashmap::DashMap;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum time that our slices wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);

/// Time for clients of an activator to reconnect. It equals the time after which an activator closes an idle
/// connection, so a busier client gets a response that closes its connection.
pub(crate) const RECONNECT_TIME: Duration = Duration::from_secs(2);

/// Ready addresses of a Service that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Addresses of its workload's pods that clients should find. Zero if the Service has no selector, because then no
    /// other controller leads to the pods.
    pub(crate) pods: usize,
    /// Addresses in slices of other controllers.
    pub(crate) others: usize,
}

impl Addresses {
    /// Counts the addresses of a Service whose workload has `pods` pods.
    pub(crate) fn count(service: Option<&Service>, pods: usize, mut slices: Vec<Arc<EndpointSlice>>) -> Self {
        let selects = service.is_some_and(|found| unfit(found).is_none() && needs_adoption(found));
        slices.retain(|slice| !slices::is_ours(slice));
        Self { pods: if selects { pods } else { 0 }, others: slices::ready(&slices) }
    }

    /// Reports whether our slices are no longer needed.
    pub(crate) fn is_handed_over(self) -> bool {
        self.others >= self.pods
    }
}

/// Services that are being handed over.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    begun: DashMap<Key, Handover>,
}

#[derive(Debug)]
struct Handover {
    /// ZeroScaler that had the Service.
    from: Key,
    since: Instant,
}

impl Handovers {
    /// Returns how much longer our slices stay for a Service that `from` gave back. Returns `None` if they may be
    /// deleted.
    pub(crate) fn remaining_slice_time(&self, service: &Key, from: &Key, addresses: Addresses) -> Option<Duration> {
        if !addresses.is_handed_over() {
            let new = || Handover { from: from.clone(), since: Instant::now() };
            let since = self.begun.entry(service.clone()).or_insert_with(new).since;
            let left = WAIT_MAX.saturating_sub(since.elapsed());
            if !left.is_zero() {
                return Some(left);
            }
        }
        self.begun.remove(service);
        None
    }

    /// Returns the ZeroScaler that waits for slices of a Service.
    pub(crate) fn waiting(&self, service: &Key) -> Option<Key> {
        self.begun.get(service).map(|handover| handover.from.clone())
    }

    /// Forgets the Services that a ZeroScaler gave back.
    pub(crate) fn forget(&self, from: &Key) {
        self.begun.retain(|_, handover| handover.from != *from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: our slices stay until other slices lead to as many addresses, for a bounded time, and each wait has its
    /// own clock.
    #[tokio::test(start_paused = true)]
    async fn our_slices_stay_until_others_lead_to_as_many_addresses() {
        let (handovers, service, from) = (Handovers::default(), Key::new("ns", "web"), Key::new("ns", "hello"));
        let left = |pods, others| handovers.remaining_slice_time(&service, &from, Addresses { pods, others });
        assert_eq!(left(0, 0), None, "no pod needs our slices");
        assert_eq!(left(2, 0), Some(WAIT_MAX));
        assert_eq!(handovers.waiting(&service), Some(from.clone()));
        tokio::time::advance(WAIT_MAX / 2).await;
        assert_eq!(left(2, 1), Some(WAIT_MAX / 2));
        assert_eq!(left(2, 2), None);
        assert_eq!(handovers.waiting(&service), None);
        assert_eq!(left(1, 0), Some(WAIT_MAX), "another wait");
        tokio::time::advance(WAIT_MAX).await;
        assert_eq!(left(1, 0), None, "other slices may never come");
        assert_eq!(left(1, 0), Some(WAIT_MAX));
        handovers.forget(&from);
        assert_eq!(handovers.waiting(&service), None);
    }
}
