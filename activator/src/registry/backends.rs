//! Task of one revision that turns pod listings into usable destinations, by the rules of [`activator_core::backends`].
//!
//! A slow or silent pod delays no other pod and no other revision: each probe and each revision has its own task.
//! Between events the task sleeps; its only timer is for the next probe. The tasks share the [`ProbeBudget`].
//!
//! An [`Inbox`] coalesces the inputs.

use crate::discovery::{Listing, Spec};
use crate::registry::Parts;
use crate::registry::probe_inbox::{Inbox, ProbeInbox};
use crate::registry::revision::Revision;
use activator_core::backends::{Action, Attempt, Backends, Event, ProbeOutcome};
use activator_core::{Destination, Destinations};
use activator_net::{Alarm, PodObserver, Pools};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Number of addresses of all revisions that share the probe budget ([`Backends::eager`]).
pub(crate) type ProbeBudget = AtomicUsize;

/// Number of addresses of one revision in the budget, returned on drop.
struct BudgetShare {
    budget: Arc<ProbeBudget>,
    own: usize,
}

impl BudgetShare {
    fn set(&mut self, own: usize) {
        let before = std::mem::replace(&mut self.own, own);
        if before != own {
            // A single wrapping addition, because other tasks may read between two steps.
            self.budget.fetch_add(own.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    fn all(&self) -> usize {
        self.budget.load(Ordering::Relaxed)
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Starts the task of one revision. It ends with the revision.
pub(super) fn start(revision: &Arc<Revision>, Parts { pools, probe_budget, runtime, .. }: &Parts) {
    let shared = revision.backends.clone();
    let Some(spec) = shared.inbox.lock().spec.take() else { return };
    let task = Task {
        machine: Backends::new(spec.rules),
        spec,
        share: BudgetShare { budget: probe_budget.clone(), own: 0 },
        listed: BTreeSet::new(),
        serving: false,
        probes: JoinSet::new(),
        revision: Arc::downgrade(revision),
        namespace: revision.key.namespace().to_owned(),
        pools: pools.clone(),
    };
    // The caller may run on a worker for client connections.
    runtime.spawn(task.run(shared));
}

struct Task {
    machine: Backends,
    spec: Arc<Spec>,
    share: BudgetShare,
    listed: BTreeSet<Destination>,
    serving: bool,
    probes: JoinSet<(Destination, Attempt, ProbeOutcome)>,
    revision: Weak<Revision>,
    namespace: String,
    pools: Arc<Pools>,
}

impl Task {
    async fn run(mut self, shared: Arc<ProbeInbox>) {
        let mut alarm = Alarm::default();
        loop {
            let due = self.machine.due().map(Instant::from_std);
            tokio::select! {
                () = shared.changed.notified() => {
                    let inbox = std::mem::take(&mut *shared.inbox.lock());
                    if inbox.closed {
                        break;
                    }
                    self.apply(inbox);
                }
                Some(probed) = self.probes.join_next() => match probed {
                    Ok((destination, attempt, outcome)) => self.handle(Event::Probed { destination, attempt, outcome }),
                    Err(error) => tracing::error!(%error, "a probe panicked"),
                },
                () = alarm.until(due) => self.handle(Event::Due),
            }
        }
        for destination in &self.listed {
            self.pools.unobserve(destination.address(), &self.observer());
            self.pools.remove(destination.address());
        }
    }

    fn apply(&mut self, inbox: Inbox) {
        if let Some(spec) = inbox.spec {
            // Destinations that passed by the former rules stay in use: an edit drops nothing, except pods that were
            // never probed (mesh mode `enabled`).
            let actions = self.machine.set_rules(spec.rules, Instant::now().into_std());
            self.spec = spec;
            self.act(actions);
            self.share.set(self.machine.eager(Instant::now().into_std()));
        }
        if let Some(cluster_ip) = inbox.cluster_ip {
            self.handle(Event::ClusterIp(cluster_ip));
        }
        if let Some(listing) = inbox.listing {
            self.set_listing(listing);
        }
        for destination in inbox.failed {
            self.handle(Event::Failed(destination));
        }
    }

    fn set_listing(&mut self, listing: Listing) {
        let now = Instant::now();
        let listed: BTreeSet<Destination> = listing.all().cloned().collect();
        if self.listed.is_empty()
            && !listed.is_empty()
            && let Some(revision) = self.revision.upgrade()
        {
            revision.record_step(|timeline| timeline.address_known = Some(now));
        }
        for new in listed.difference(&self.listed) {
            self.pools.observe(new.address(), self.observer());
        }
        let gone: Vec<Destination> = self.listed.difference(&listed).cloned().collect();
        self.listed = listed;
        self.handle(Event::Listed { ready: listing.ready, not_ready: listing.not_ready });
        // `handle` has published the change, so no request is sent to these pods any more.
        for destination in gone {
            self.pools.unobserve(destination.address(), &self.observer());
            self.pools.remove(destination.address());
        }
    }

    fn observer(&self) -> Weak<dyn PodObserver> {
        self.revision.clone()
    }

    fn handle(&mut self, event: Event) {
        let now = Instant::now().into_std();
        self.machine.share_budget_among(self.share.all());
        let actions = self.machine.handle(event, now);
        self.share.set(self.machine.eager(now));
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Probe { destination, attempt, timeouts } => {
                    let pool = self.pools.get(destination.address(), &self.namespace);
                    let (spec, passthrough) = (self.spec.clone(), self.spec.passthrough.as_deref().cloned());
                    self.probes.spawn(async move {
                        let outcome = activator_net::probe(&pool, &spec.backend, passthrough, timeouts).await;
                        (destination, attempt, outcome)
                    });
                }
                Action::Publish(destinations) => self.publish(destinations),
            }
        }
    }

    fn publish(&mut self, destinations: Destinations) {
        let Some(revision) = self.revision.upgrade() else { return };
        let (serving, now) = (!destinations.is_empty(), Instant::now());
        let is_woken = serving && !self.serving;
        if is_woken {
            revision.record_step(|timeline| timeline.probed = Some(now));
        }
        // A held request reports the wake itself, with its response.
        let is_held = revision.metrics.is_held();
        self.serving = serving;
        tracing::debug!(revision = %revision.key, ?destinations, "destinations changed");
        if let Some(link) = &*revision.link() {
            link.set_behind_service(matches!(destinations, Destinations::ClusterIp { .. }));
        }
        revision.throttler.update(destinations);
        if serving {
            let since = revision.wakes.end(now);
            if let Some(since) = since.filter(|_| is_woken && !is_held) {
                // Only waiting pages and placeholders were sent.
                revision.report_wake(since, now, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_counts_the_addresses_that_share_it() {
        let budget = Arc::<ProbeBudget>::default();
        let [mut one, mut other] = [(); 2].map(|()| BudgetShare { budget: budget.clone(), own: 0 });
        one.set(3);
        other.set(4);
        assert_eq!(one.all(), 7);
        one.set(1);
        assert_eq!(other.all(), 5);
        drop(one);
        assert_eq!(other.all(), 4);
    }
}
