//! Spans of a wake, in standalone with tracing enabled, under the span of the request that wakes the workload.
//!
//! | span | kind | parent | from | to |
//! |---|---|---|---|---|
//! | `poke` | consumer | the request's, in the activator | its stat was read | the replicas are changed, cannot be changed, or are no longer needed |
//! | `decide` | internal | `poke` | an evaluation begins | it has ended |
//! | `patch` | client | `poke` | a change of the replicas is to be written | the API server has responded; includes all waiting before |
//!
//! The activator names its span in the stat that wakes the workload. A delayed or repeated stat names none. A Knative
//! install records no spans between a stat and a patch, neither with Knative's autoscaler nor with this one.

use autoscaler_core::decider::Decision;
use common::RevisionKey;
use common_runtime::telemetry::traces::{Context, KeyValue, SpanKind, Status, TraceContextExt, Tracer, Tracing};
use std::fmt::Display;

/// Traced wake. Dropping it drops its `poke` span, which thereby ends.
pub struct Waking {
    tracing: Tracing,
    poke: Context,
    key: RevisionKey,
}

/// Span, which ends when it is dropped.
pub struct Step(Context);

impl Waking {
    /// Begins `poke` under the span that `line` names. Returns none if it names no span.
    pub(super) fn begin(tracing: &Tracing, line: &str, key: &RevisionKey) -> Option<Self> {
        let parent = Tracing::parse_traceparent(line)?;
        let poke = span(tracing, "poke", SpanKind::Consumer, &parent, revision_attributes(key));
        Some(Self { tracing: tracing.clone(), poke, key: key.clone() })
    }

    /// Begins `decide`.
    pub(super) fn deciding(&self) -> Step {
        Step(span(&self.tracing, "decide", SpanKind::Internal, &self.poke, revision_attributes(&self.key)))
    }

    /// Begins `patch` for a change of a target's replicas.
    pub fn patching(&self, target: &str, from: i32, to: i32) -> Step {
        let mut attributes = revision_attributes(&self.key);
        attributes.extend([
            KeyValue::new("http.request.method", "PATCH"),
            KeyValue::new("zeroscale.target.name", target.to_owned()),
            KeyValue::new("zeroscale.replicas.before", i64::from(from)),
            KeyValue::new("zeroscale.replicas.after", i64::from(to)),
        ]);
        Step(span(&self.tracing, "patch", SpanKind::Client, &self.poke, attributes))
    }

    /// Marks the wake as failed for now.
    pub(super) fn failed(&self, why: &'static str) {
        self.poke.span().set_status(Status::error(why));
    }
}

impl Step {
    pub(super) fn decided(&self, decision: &Decision) {
        let span = self.0.span();
        match decision {
            Ok(scale) => {
                span.set_attribute(KeyValue::new("zeroscale.pods.desired", i64::from(scale.desired)));
                span.set_attribute(KeyValue::new("zeroscale.panic", scale.panicking));
            }
            Err(unknown) => span.set_status(Status::error(unknown.to_string())),
        }
    }

    /// Records the API server's status, if it responded, and the error, if the patch failed.
    pub fn answered(&self, status: Option<u16>, error: Option<&dyn Display>) {
        let span = self.0.span();
        if let Some(status) = status {
            span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        }
        if let Some(error) = error {
            let kind = status.map_or_else(|| "_OTHER".to_owned(), |status| status.to_string());
            span.set_attribute(KeyValue::new("error.type", kind));
            span.set_status(Status::error(error.to_string()));
        }
    }
}

fn revision_attributes(key: &RevisionKey) -> Vec<KeyValue> {
    vec![
        KeyValue::new("k8s.namespace.name", key.namespace().to_owned()),
        KeyValue::new("kn.revision.name", key.name().to_owned()),
    ]
}

fn span(tracing: &Tracing, name: &'static str, kind: SpanKind, parent: &Context, attributes: Vec<KeyValue>) -> Context {
    let builder = tracing.tracer().span_builder(name).with_kind(kind).with_attributes(attributes);
    parent.with_span(tracing.tracer().build_with_context(builder, parent))
}
