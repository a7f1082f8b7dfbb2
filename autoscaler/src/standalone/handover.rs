//! From our EndpointSlices of a Service that is given back to Kubernetes' own.
//!
//! A Service that has its selector back gets slices of Kubernetes' own controller: some milliseconds later, or seconds where
//! that is busy. Until then ours are all that its clients have. So ours stay until Kubernetes' own name as many ready
//! addresses as the private Service, which selects the workload's pods; [`WAIT_MAX`] at most, since they may never come:
//! none are made in a namespace that ends, and the selector may be that of other pods.
//!
//! Who keeps a connection to an activator follows no slice. While the ZeroScaler is being deleted activators end
//! such connections once no slice leads to them: each with its next answer, or when nothing is asked for on it. Whoever asks on one after the end of the
//! ZeroScaler is refused, so that one stays for [`COME_ANEW`] once Kubernetes' own slices are there.

use super::serverless::adopt::{needs_adoption, unfit};
use super::serverless::slices;
use common::RevisionKey as Key;
use dashmap::DashMap;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long ours wait at most.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);

/// How long who is connected to an activator has to come anew: as long as an activator takes to end an idle connection,
/// so that whoever asks more often gets an answer that ends it.
pub(crate) const COME_ANEW: Duration = Duration::from_secs(2);

/// Ready addresses of a Service that has been given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Of the workload's pods, which its clients should find.
    pods: usize,
    /// Where slices lead that are not ours.
    theirs: usize,
}

impl Addresses {
    /// Of a Service whose workload has so many ready pods, by its slices. Nobody but us leads to the pods of one that
    /// selects none.
    pub(crate) fn of(service: Option<&Service>, pods: usize, mut slices: Vec<Arc<EndpointSlice>>) -> Self {
        let selects = service.is_some_and(|found| unfit(found).is_none() && needs_adoption(found));
        slices.retain(|slice| !slices::is_ours(slice));
        Self { pods: if selects { pods } else { 0 }, theirs: slices::ready(&slices) }
    }

    /// Whether nobody would miss ours.
    pub(crate) fn are_handed_over(self) -> bool {
        self.theirs >= self.pods
    }

    /// Whether there are any, all of which others lead to.
    pub(crate) fn lead_past_us(self) -> bool {
        self.pods > 0 && self.are_handed_over()
    }
}

/// Services that are being handed over.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    begun: DashMap<Key, Handover>,
}

#[derive(Debug)]
struct Handover {
    /// The ZeroScaler that had it.
    from: Key,
    since: Instant,
}

impl Handovers {
    /// How much longer slices of ours stay for the Service that `from` has given back, and that has these addresses; none:
    /// they may go.
    pub(crate) fn left(&self, service: &Key, from: &Key, addresses: Addresses) -> Option<Duration> {
        if !addresses.are_handed_over() {
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

    /// Who waits for slices of a Service.
    pub(crate) fn waiting(&self, service: &Key) -> Option<Key> {
        self.begun.get(service).map(|handover| handover.from.clone())
    }

    /// Forgets what one has given back.
    pub(crate) fn forget(&self, from: &Key) {
        self.begun.retain(|_, handover| handover.from != *from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ours stay until theirs are as many, for so long at most, and each wait has a time of its own.
    #[tokio::test(start_paused = true)]
    async fn ours_stay_until_theirs_are_as_many() {
        let (handovers, service, from) = (Handovers::default(), Key::new("ns", "web"), Key::new("ns", "hello"));
        let left = |pods, theirs| handovers.left(&service, &from, Addresses { pods, theirs });
        assert_eq!(left(0, 0), None, "nobody would miss ours");
        assert_eq!(left(2, 0), Some(WAIT_MAX));
        assert_eq!(handovers.waiting(&service), Some(from.clone()));
        tokio::time::advance(WAIT_MAX / 2).await;
        assert_eq!(left(2, 1), Some(WAIT_MAX / 2));
        assert_eq!(left(2, 2), None);
        assert_eq!(handovers.waiting(&service), None);
        assert_eq!(left(1, 0), Some(WAIT_MAX), "another wait");
        tokio::time::advance(WAIT_MAX).await;
        assert_eq!(left(1, 0), None, "they may never come");
        assert_eq!(left(1, 0), Some(WAIT_MAX));
        handovers.forget(&from);
        assert_eq!(handovers.waiting(&service), None);
    }
}
