//! Tells the autoscaler what is going on.
//!
//! - The first request of an idle revision sends its signal at once, from the request's own task: no timer and no other
//!   task lies between.
//! - Every second one frame carries a report for each revision that has something to say, and an attestation that this
//!   activator is here and connected, so that the silence of the others means no load.
//! - A request that comes back because its pod is gone, and finds no other, repeats the signal.
//! - A signal that no connection has carried is owed, and sent as soon as there is a connection.
//!
//! While there is no connection reports are dropped: they are about a second that has passed. What is owed is in the
//! accounting ([`activator_core::accounting`]); this module only carries.

use crate::metrics::Metrics;
use crate::registry::revision::Revision;
use activator_core::accounting::Signal;
use bytes::Bytes;
use common::stat::{Stat, WireStatMessage, WireStatMessages};
use common::wire;
use common_runtime::websocket::DurableSender;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// Time between two reports, as upstream.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Carries stats. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StatSink {
    shared: Arc<Shared>,
    /// Whether the autoscaler is told of the trace of the request that wakes.
    traces: bool,
}

struct Shared {
    link: DurableSender,
    pod_name: String,
    system_namespace: String,
    /// Revisions that have something to say: one entry for each, marked by [`Revision::reporting`].
    reporting: Mutex<Vec<Arc<Revision>>>,
    metrics: Metrics,
    /// Whether the autoscaler is one of ours, and is told what else was seen.
    shows: bool,
}

impl StatSink {
    /// A sink over `link`. `shows`: reports say what else was seen ([`super::seen`]), beside what decisions need.
    pub(crate) fn new(
        link: DurableSender,
        pod_name: String,
        system_namespace: String,
        metrics: Metrics,
        shows: bool,
    ) -> Self {
        let reporting = Mutex::default();
        Self { shared: Arc::new(Shared { link, pod_name, system_namespace, reporting, metrics, shows }), traces: false }
    }

    /// The same, which tells an autoscaler of ours of the trace of the request that wakes.
    pub(crate) fn with_traces(self, traces: bool) -> Self {
        Self { traces, ..self }
    }

    /// An idle revision got its first request. `trace` names its span, if it has one that others should go on with.
    pub(crate) fn first_request(&self, revision: &Arc<Revision>, trace: impl FnOnce() -> Option<String>) {
        // Before a report can take the signal, which knows no trace.
        self.send_signal(revision, trace);
        self.observed(revision);
        // The link may have come up in between, and sent what the list owed.
        self.send_signal(revision, || None);
    }

    /// Something was seen of a revision that may be idle ([`super::seen`]): the next report says it.
    pub(crate) fn observed(&self, revision: &Arc<Revision>) {
        if !revision.reporting.swap(true, Ordering::AcqRel) {
            self.shared.reporting.lock().push(revision.clone());
        }
    }

    /// A request lost its pod, and there is no other: the autoscaler should not learn that from the next report only.
    pub(crate) fn still_waiting(&self, revision: &Arc<Revision>) {
        if !self.shared.link.is_connected() {
            return; // The report after the next connect says it all.
        }
        let Some(signal) = revision.stats.reminder() else { return };
        // It arrived before, and was counted then.
        let frame = self.frame(vec![self.entry(revision, 1.0, 0.0)]);
        self.send(frame, vec![(revision.clone(), signal)]);
    }

    /// Reports every second, and sends what is owed when the link comes up, until `shutdown`.
    pub(crate) async fn run(self, readiness: Arc<crate::registry::readiness::Readiness>, shutdown: CancellationToken) {
        let mut connected = self.shared.link.connected();
        let mut interval = tokio::time::interval(REPORT_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_up = false;
        loop {
            let up = *connected.borrow_and_update();
            if up != was_up {
                was_up = up;
                self.shared.metrics.link_reachable.set(i64::from(up));
                if up {
                    readiness.set_linked();
                    self.send_owed();
                } else {
                    self.shared.metrics.link_errors.inc();
                }
            }
            tokio::select! {
                _ = interval.tick() => self.report(),
                changed = connected.changed() => if changed.is_err() {
                    return; // The link has ended, which it does on shutdown only.
                },
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// Sends the signal of one revision, if it is owed.
    fn send_signal(&self, revision: &Arc<Revision>, trace: impl FnOnce() -> Option<String>) {
        if !self.shared.link.is_connected() {
            return; // Owed until there is a connection.
        }
        let Some(signal) = revision.stats.signal() else { return };
        let trace = if self.traces { trace().unwrap_or_default() } else { String::new() };
        let frame = self.frame(vec![WireStatMessage { trace, ..self.entry(revision, 1.0, 1.0) }]);
        self.send(frame, vec![(revision.clone(), signal)]);
    }

    fn send_owed(&self) {
        let owing: Vec<Arc<Revision>> = self.shared.reporting.lock().clone();
        for revision in &owing {
            self.send_signal(revision, || None);
        }
    }

    /// Hands a frame to the link, and confirms its signals once it has been written.
    fn send(&self, frame: Bytes, signals: Vec<(Arc<Revision>, Signal)>) {
        if signals.is_empty() {
            if let Err(error) = self.shared.link.try_send(frame) {
                tracing::debug!(%error, "report dropped");
            }
            return;
        }
        let link = self.shared.link.clone();
        let mut carrying = Box::pin(async move {
            match link.send(frame).await {
                Ok(()) => {
                    let now = Instant::now();
                    for (revision, signal) in signals {
                        revision.note(|timeline| timeline.signalled = Some(now));
                        signal.confirm();
                    }
                }
                Err(error) => tracing::debug!(%error, "first signal is owed"),
            }
        });
        // The first poll queues the frame, here and now; only the confirmation is left to another task.
        if carrying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::spawn(carrying);
        }
    }

    /// One second's frame.
    fn report(&self) {
        let shared = &*self.shared;
        let connected = shared.link.is_connected();
        let mut messages = vec![wire::attestation(&shared.system_namespace, &shared.pod_name)];
        let mut signals = Vec::new();
        let reporting = std::mem::take(&mut *shared.reporting.lock());
        let mut kept = Vec::with_capacity(reporting.len());
        for revision in reporting {
            let seen = if shared.shows { revision.seen() } else { None };
            if let Some(report) = revision.stats.report() {
                revision.metrics.concurrency.set(report.average_concurrency);
                let entry = self.entry(&revision, report.average_concurrency, report.request_count);
                messages.push(WireStatMessage { seen, ..entry });
                // Unconnected, it is dropped and owed again.
                signals.extend(report.signal.map(|signal| (revision.clone(), signal)));
            } else if seen.is_some() {
                messages.push(WireStatMessage { seen, ..self.entry(&revision, 0.0, 0.0) });
            }
            if revision.stats.is_tracked() {
                kept.push(revision);
                continue;
            }
            // Give up the place first, then look again: a request that came in between takes it anew, or is seen here.
            revision.reporting.store(false, Ordering::Release);
            if revision.stats.is_tracked() && !revision.reporting.swap(true, Ordering::AcqRel) {
                kept.push(revision);
            }
        }
        shared.reporting.lock().append(&mut kept);
        if connected {
            self.send(self.frame(messages), signals);
        }
    }

    fn entry(&self, revision: &Revision, concurrency: f64, count: f64) -> WireStatMessage {
        WireStatMessage {
            namespace: revision.key.namespace().to_owned(),
            name: revision.key.name().to_owned(),
            stat: Some(Stat {
                pod_name: self.shared.pod_name.clone(),
                average_concurrent_requests: concurrency,
                request_count: count,
                ..Stat::default()
            }),
            ..WireStatMessage::default()
        }
    }

    fn frame(&self, messages: Vec<WireStatMessage>) -> Bytes {
        wire::encode(&WireStatMessages { messages }).into()
    }
}
