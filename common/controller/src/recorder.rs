//! Kubernetes Events, which users see in `kubectl describe`.
//!
//! One task writes the events from a bounded channel, so no reconcile waits for one. If [`WAITING_MAX`] events wait,
//! further ones are dropped with a log line: events are a convenience, and the log has the same information. They are
//! written as core/v1 Events, the only kind that upstream's roles allow.

use crate::limiter::WriteLimiter;
use crate::repeats::Repeats;
use crate::store::key_of;
use common::text::printable_line;
use common::write_rate::{Rate, WriteClass};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum number of waiting events: enough for a few events per revision in the worst minute of a cluster with some
/// hundred busy revisions.
const WAITING_MAX: usize = 1024;

/// Writes events in the background. Clones share the channel.
#[derive(Clone, Debug)]
pub struct Recorder {
    events: mpsc::Sender<Event>,
    repeats: Arc<Mutex<Repeats>>,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Normal operation.
    Normal,
    /// An operator may have to act.
    Warning,
}

impl Recorder {
    /// Starts the writing task, at upstream's rate; it ends with `shutdown`.
    pub fn start(client: Client, shutdown: CancellationToken) -> Self {
        Self::limited(client, WriteLimiter::new(Rate::AUTOSCALER), shutdown)
    }

    /// Starts the writing task for a process whose writes share a limiter.
    pub fn limited(client: Client, limiter: WriteLimiter, shutdown: CancellationToken) -> Self {
        let (events, mut waiting) = mpsc::channel::<Event>(WAITING_MAX);
        tokio::spawn(async move {
            while let Some(Some(event)) = shutdown.run_until_cancelled(waiting.recv()).await {
                if shutdown.run_until_cancelled(limiter.acquire(WriteClass::Event)).await.is_none() {
                    return;
                }
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
                if let Err(error) = api.create(&PostParams::default(), &event).await {
                    tracing::debug!(%error, "an event could not be written");
                }
            }
        });
        Self { events, repeats: Arc::default() }
    }

    /// Records an error of `object`, unless the same error was recorded a few minutes ago. For passes that keep failing
    /// in the same way until a user acts.
    pub fn record_error<K: Resource<DynamicType = ()>>(
        &self,
        component: &'static str,
        object: &K,
        reason: &str,
        message: String,
    ) {
        let report = (key_of(object), object.meta().uid.as_deref(), K::kind(&()), reason, message.as_str());
        if self.repeats.lock().is_new(&report, Instant::now()) {
            self.record(component, object, Severity::Warning, reason, message);
        }
    }

    /// Records an event about `object`.
    pub fn record<K: Resource<DynamicType = ()>>(
        &self,
        component: &'static str,
        object: &K,
        severity: Severity,
        reason: &str,
        message: String,
    ) {
        let message = printable_line(&message).into_owned();
        let event = event(component, object, severity, reason, message, Timestamp::now());
        if self.events.try_send(event).is_err() {
            tracing::debug!(reason, "an event was dropped because too many events wait to be written");
        }
    }
}

/// Builds an event about `object`, with a unique name.
fn event<K: Resource<DynamicType = ()>>(
    component: &'static str,
    object: &K,
    severity: Severity,
    reason: &str,
    message: String,
    now: Timestamp,
) -> Event {
    let (key, time) = (key_of(object), Some(Time(now)));
    Event {
        metadata: ObjectMeta {
            // The same form as in Kubernetes' own recorders, unique to the nanosecond.
            name: Some(format!("{}.{:x}", key.name(), now.as_nanosecond())),
            namespace: Some(key.namespace().to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            resource_version: object.meta().resource_version.clone(),
            ..object.object_ref(&())
        },
        type_: Some(if severity == Severity::Normal { "Normal" } else { "Warning" }.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        first_timestamp: time.clone(),
        last_timestamp: time,
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_api::PodAutoscaler;

    #[test]
    fn an_event_names_its_object_severity_and_reason() {
        let mut object = PodAutoscaler::new("hello", Default::default());
        object.metadata.namespace = Some("ns".into());
        object.metadata.uid = Some("u".into());
        let now = Timestamp::from_second(1_700_000_000).expect("a time");
        let event = event("podautoscaler-controller", &object, Severity::Warning, "InternalError", "why".into(), now);
        let about = event.involved_object;
        assert_eq!(about.kind.as_deref(), Some("PodAutoscaler"));
        assert_eq!(about.api_version.as_deref(), Some("autoscaling.internal.knative.dev/v1alpha1"));
        assert_eq!((about.name.as_deref(), about.uid.as_deref()), (Some("hello"), Some("u")));
        assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("InternalError")));
        assert!(event.metadata.name.is_some_and(|name| name.starts_with("hello.")));
    }
}
