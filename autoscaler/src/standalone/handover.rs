//! From our EndpointSlices of a Service that is given back to Kubernetes' own.
//!
//! A Service that has its selector back gets slices of Kubernetes' own controller: some milliseconds later, or seconds where
//! that is busy. Until then ours are all that its clients have. So ours stay until Kubernetes' own name as many ready
//! addresses as the private Service, which selects the workload's pods; [`WAIT_MAX`] at most, since they may never come:
//! none are made in a namespace that ends, and the selector may be that of other pods.

use common::RevisionKey as Key;
use dashmap::DashMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long ours wait at most.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);

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
    /// How much longer slices of ours stay for the Service that `from` has given back, where they lead to so many ready
    /// addresses, and Kubernetes' own to `theirs`; none: they may go.
    pub(crate) fn left(&self, service: &Key, from: &Key, ours: usize, theirs: usize) -> Option<Duration> {
        if theirs < ours {
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
        let left = |ours, theirs| handovers.left(&service, &from, ours, theirs);
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
