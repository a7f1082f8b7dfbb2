//! Reports to the autoscaler.
//!
//! - The first request of an idle revision sends its signal at once, from the request's own task, without a timer or
//!   another task in between.
//! - Every second, one frame carries a report for each revision with something to report, and an attestation that this
//!   activator is running and connected. So a missing report of any other revision means no load.
//! - A request that loses its pod and finds no other repeats the signal.
//! - A signal that could not be sent stays pending, and is sent as soon as there is a connection.
//!
//! Without a connection reports are dropped, because they describe a second that has passed. The accounting
//! ([`activator_core::accounting`]) keeps track of pending signals; this module only sends.

use crate::metrics::Metrics;
use crate::registry::readiness::Readiness;
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

/// Interval between two reports, as in Knative.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct StatSink {
    pub(crate) link: DurableSender,
    pub(crate) pod_name: String,
    pub(crate) system_namespace: String,
    /// Revisions to report: one entry for each, marked by [`Revision::reporting`].
    pub(crate) reporting: Mutex<Vec<Arc<Revision>>>,
    pub(crate) metrics: Metrics,
    /// The autoscaler is Zeroscale's. It also gets observations ([`super::observations`]), and the trace of the request
    /// that wakes a revision.
    pub(crate) sends_extensions: bool,
}

impl StatSink {
    /// Signals the first request of an idle revision. `trace` returns its span, if other processes should continue it.
    pub(crate) fn first_request(&self, revision: &Arc<Revision>, trace: impl FnOnce() -> Option<String>) {
        // Comes first, because a report could take the signal, and reports carry no trace.
        self.send_signal(revision, trace);
        self.include_in_report(revision);
        // The link may have come up in between, and sent the pending signals of the list.
        self.send_signal(revision, || None);
    }

    /// Includes a revision that may be idle in the next report, because there are observations of it
    /// ([`super::observations`]).
    pub(crate) fn include_in_report(&self, revision: &Arc<Revision>) {
        if !revision.reporting.swap(true, Ordering::AcqRel) {
            self.reporting.lock().push(revision.clone());
        }
    }

    /// Signals at once that a request lost its pod and there is no other, without waiting for the next report.
    pub(crate) fn still_waiting(&self, revision: &Arc<Revision>) {
        if !self.link.is_connected() {
            return; // The report after the next connect includes the request.
        }
        let Some(signal) = revision.stats.reminder() else { return };
        // The request was counted when it arrived.
        let frame = self.frame(vec![self.entry(revision, 1.0, 0.0)]);
        self.send(frame, vec![(revision.clone(), signal)]);
    }

    /// Reports every second, and sends pending signals when the link comes up, until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, readiness: Arc<Readiness>, shutdown: CancellationToken) {
        let mut connected = self.link.connected();
        let mut interval = tokio::time::interval(REPORT_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_up = false;
        loop {
            let up = *connected.borrow_and_update();
            if up != was_up {
                was_up = up;
                self.metrics.link_reachable.set(i64::from(up));
                if up {
                    readiness.set_linked();
                    let pending: Vec<Arc<Revision>> = self.reporting.lock().clone();
                    pending.iter().for_each(|revision| self.send_signal(revision, || None));
                } else {
                    self.metrics.link_errors.inc();
                }
            }
            tokio::select! {
                _ = interval.tick() => self.report(),
                changed = connected.changed() => if changed.is_err() {
                    return; // The link ends only on shutdown.
                },
                () = shutdown.cancelled() => return,
            }
        }
    }

    fn send_signal(&self, revision: &Arc<Revision>, trace: impl FnOnce() -> Option<String>) {
        if !self.link.is_connected() {
            return; // Pending until there is a connection.
        }
        let Some(signal) = revision.stats.signal() else { return };
        let trace = if self.sends_extensions { trace().unwrap_or_default() } else { String::new() };
        let frame = self.frame(vec![WireStatMessage { trace, ..self.entry(revision, 1.0, 1.0) }]);
        self.send(frame, vec![(revision.clone(), signal)]);
    }

    /// Hands a frame to the link, and confirms its signals once it has been written.
    fn send(&self, frame: Bytes, signals: Vec<(Arc<Revision>, Signal)>) {
        if signals.is_empty() {
            if let Err(error) = self.link.try_send(frame) {
                tracing::debug!(%error, "report dropped");
            }
            return;
        }
        let link = self.link.clone();
        let mut sending = Box::pin(async move {
            match link.send(frame).await {
                Ok(()) => {
                    let now = Instant::now();
                    for (revision, signal) in signals {
                        revision.record_step(|timeline| timeline.signalled = Some(now));
                        signal.confirm();
                    }
                }
                Err(error) => tracing::debug!(%error, "the first signal could not be sent and stays pending"),
            }
        });
        // The first poll queues the frame; only the confirmation is left to another task.
        if sending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::spawn(sending);
        }
    }

    /// Sends the frame of one second.
    fn report(&self) {
        let connected = self.link.is_connected();
        let mut messages = vec![wire::attestation(&self.system_namespace, &self.pod_name)];
        let mut signals = Vec::new();
        let reporting = std::mem::take(&mut *self.reporting.lock());
        let mut tracked = Vec::with_capacity(reporting.len());
        for revision in reporting {
            let observations = if self.sends_extensions { revision.take_observations() } else { None };
            if let Some(report) = revision.stats.report() {
                revision.metrics.concurrency.set(report.average_concurrency);
                let entry = self.entry(&revision, report.average_concurrency, report.request_count);
                messages.push(WireStatMessage { observations, ..entry });
                // Without a connection the signal is dropped and stays pending.
                signals.extend(report.signal.map(|signal| (revision.clone(), signal)));
            } else if observations.is_some() {
                messages.push(WireStatMessage { observations, ..self.entry(&revision, 0.0, 0.0) });
            }
            if revision.stats.is_tracked() {
                tracked.push(revision);
                continue;
            }
            // Leave the list first, then check again: a request in between either rejoins the list, or is found here.
            revision.reporting.store(false, Ordering::Release);
            if revision.stats.is_tracked() && !revision.reporting.swap(true, Ordering::AcqRel) {
                tracked.push(revision);
            }
        }
        self.reporting.lock().append(&mut tracked);
        if connected {
            self.send(self.frame(messages), signals);
        }
    }

    fn entry(&self, revision: &Revision, concurrency: f64, count: f64) -> WireStatMessage {
        WireStatMessage {
            namespace: revision.key.namespace().to_owned(),
            name: revision.key.name().to_owned(),
            stat: Some(Stat {
                pod_name: self.pod_name.clone(),
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
