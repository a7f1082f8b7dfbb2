//! Spans of one request, if tracing is on. Names and parents match Knative's.
//!
//! | span | kind | parent | ends |
//! |---|---|---|---|
//! | `METHOD` | server | the client's | with the response body, or the tunnel |
//! | `throttler_try` | internal | server | when a permit was granted, or refused |
//! | `activator_proxy` | internal | server | with the response body |
//! | `METHOD /path` | client | `activator_proxy`; one for each attempted pod | with the response body |
//!
//! The request to the pod names the client span as its parent; `baggage` passes unchanged. In standalone mode the
//! signal of the request that wakes a workload names the server span, and the autoscaler adds its own spans below it.
//! If tracing is off, no spans exist and the client's context passes unchanged.
//!
//! If a pod's queue has no room, the first attempt is a failed client span, and all further attempts share the next
//! one, up to the response. So do attempts at a port on which a pod does not listen yet.

use crate::metrics::method_name;
use crate::registry::revision::Revision;
use activator_net::Inbound;
use common_runtime::telemetry::traces::{Context, KeyValue, SpanKind, Status, TraceContextExt, Tracer, Tracing};
use http::{Method, StatusCode, Version, request};
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

pub(crate) struct Trace {
    tracing: Tracing,
    server: Context,
}

pub(crate) struct Span(Context);

/// Spans of a request at a pod; the client span ends first.
pub(crate) struct AtPod {
    client: Option<Span>,
    _proxy: Span,
}

impl Trace {
    /// Starts the server span. `revision` is `None` if the request belongs to no revision.
    pub(crate) fn begin(tracing: &Tracing, inbound: &Inbound, revision: Option<&Revision>) -> Arc<Self> {
        let request = &inbound.request;
        let version = if request.version() == Version::HTTP_2 { "2.0" } else { "1.1" };
        let mut attributes = vec![
            KeyValue::new("http.request.method", method_name(request.method()).to_owned()),
            KeyValue::new("url.scheme", inbound.peer.scheme()),
            KeyValue::new("url.path", request.uri().path().to_owned()),
            KeyValue::new("network.protocol.version", version),
            KeyValue::new("network.peer.address", inbound.peer.address.ip().to_string()),
        ];
        if let Some(revision) = revision {
            let live = revision.live();
            attributes.push(KeyValue::new("k8s.namespace.name", revision.key.namespace().to_owned()));
            attributes.push(KeyValue::new("kn.revision.name", revision.key.name().to_owned()));
            attributes.push(KeyValue::new("kn.configuration.name", live.spec.configuration.clone()));
            attributes.push(KeyValue::new("kn.service.name", live.spec.service.clone()));
        }
        let parent = Tracing::extract(request.headers());
        let server = below(tracing, &parent, SpanKind::Server, span_name(request.method()), attributes);
        Arc::new(Self { tracing: tracing.clone(), server })
    }

    /// Ends the server span. `None` means that the client disconnected.
    pub(crate) fn end(&self, status: Option<StatusCode>) {
        let span = self.server.span();
        if let Some(status) = status {
            span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
            if status.is_server_error() {
                span.set_status(Status::error(""));
            }
        }
        span.end();
    }

    /// Returns the server span as a W3C `traceparent` for spans of other processes; `None` if it is not sampled.
    pub(crate) fn traceparent(&self) -> Option<String> {
        Tracing::traceparent(&self.server)
    }

    pub(crate) fn waiting(&self) -> Span {
        self.child("throttler_try")
    }

    pub(crate) fn proxying(&self) -> AtPod {
        AtPod { client: None, _proxy: self.child("activator_proxy") }
    }

    /// Starts the client span of an attempt and names it in the request. An existing span of a waiting attempt
    /// continues.
    pub(crate) fn sending(&self, at: &mut AtPod, head: &mut request::Parts) {
        if at.client.is_some() {
            return;
        }
        let request::Parts { method, uri, headers, .. } = head;
        let path = if uri.path().is_empty() { "/" } else { uri.path() };
        let attributes = vec![
            KeyValue::new("http.request.method", method_name(method).to_owned()),
            KeyValue::new("url.path", path.to_owned()),
        ];
        let name = format!("{} {path}", span_name(method));
        let client = below(&self.tracing, &at._proxy.0, SpanKind::Client, name, attributes);
        Tracing::inject(&client, headers);
        at.client = Some(Span(client));
    }

    fn child(&self, name: &'static str) -> Span {
        Span(below(&self.tracing, &self.server, SpanKind::Internal, name, Vec::new()))
    }
}

impl AtPod {
    pub(crate) fn answered(&self, status: StatusCode) {
        let Some(Span(client)) = &self.client else { return };
        client.span().set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        if status.as_u16() >= 400 {
            client.span().set_status(Status::error(""));
        }
    }

    pub(crate) fn failed(&mut self, cause: &dyn Display) {
        if let Some(client) = self.client.take() {
            client.failed(cause);
        }
    }
}

impl Span {
    pub(crate) fn failed(&self, cause: &dyn Display) {
        self.0.span().set_status(Status::error(cause.to_string()));
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.0.span().end();
    }
}

fn below(
    tracing: &Tracing,
    parent: &Context,
    kind: SpanKind,
    name: impl Into<Cow<'static, str>>,
    attributes: Vec<KeyValue>,
) -> Context {
    let builder = tracing.tracer().span_builder(name).with_kind(kind).with_attributes(attributes);
    parent.with_span(tracing.tracer().build_with_context(builder, parent))
}

/// Returns the span name of a method; methods that HTTP does not define become `HTTP`.
fn span_name(method: &Method) -> String {
    match method_name(method) {
        "_OTHER" => "HTTP".to_owned(),
        name => name.to_owned(),
    }
}
