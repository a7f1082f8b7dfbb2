//! Request log: one line per request of a known revision, if `config-observability` enables it.
//!
//! The layer surrounds all layers that may respond for the revision, so errors are logged too. A line is written when
//! the response body has ended or was abandoned, with the number of bytes passed on.
//!
//! # Edge cases
//!
//! - The client disconnected before it got a response head: code 500, size 0, as in Knative.
//! - An error of the activator: its status, size 0, because its body is added further out.
//! - A protocol upgrade: 101 when the tunnel ends, size 0.
//!
//! # Better than Knative
//!
//! Knative's layer takes a relayed 1xx for the final status. Here a response has one status.

mod config;
pub(crate) mod sink;
mod template;

pub use config::Observability;

use crate::layers::call::Call;
use crate::refusal::Refusal;
use activator_net::{Guard, Guarded};
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use sink::Sink;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use template::{PartialLine, Template};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::Service;

#[derive(Clone)]
pub(crate) struct RequestLog<S> {
    inner: S,
    template: Arc<ArcSwapOption<Template>>,
    sink: Sink,
}

impl<S> RequestLog<S> {
    /// Wraps `inner`. Changes of `config` apply live.
    pub(crate) fn new(inner: S, mut config: watch::Receiver<Arc<Observability>>, sink: Sink) -> Self {
        let template = Arc::new(ArcSwapOption::new(config.borrow_and_update().template.clone()));
        let live = Arc::downgrade(&template);
        tokio::spawn(async move {
            while config.changed().await.is_ok() {
                let Some(template) = live.upgrade() else { return };
                template.store(config.borrow_and_update().template.clone());
            }
        });
        Self { inner, template, sink }
    }
}

impl<S, B> Service<Box<Call>> for RequestLog<S>
where
    S: Service<Box<Call>, Response = Response<B>, Error = Refusal>,
    B: Body<Data = Bytes>,
{
    type Response = Response<Guarded<B, Box<Record>>>;
    type Error = Refusal;
    type Future = Logged<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Box<Call>) -> Self::Future {
        let record = self.template.load().as_ref().map(|template| {
            Box::new(Record {
                line: Some(template.begin(&call)),
                received: call.received,
                code: 500,
                size: 0,
                sink: self.sink.clone(),
            })
        });
        Logged { exchange: self.inner.call(call), record }
    }
}

/// Log line of a request, written on drop.
pub(crate) struct Record {
    /// `None` if no line is written.
    line: Option<PartialLine>,
    received: Instant,
    code: u16,
    size: u64,
    sink: Sink,
}

impl Guard for Box<Record> {
    fn passed(&mut self, bytes: usize) {
        self.size += bytes as u64;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            (self.sink)(line.finish(self.code, self.size, self.received.elapsed()));
        }
    }
}

pin_project! {
    pub(crate) struct Logged<F> {
        #[pin]
        exchange: F,
        record: Option<Box<Record>>,
    }
}

impl<F, B> Future for Logged<F>
where
    F: Future<Output = Result<Response<B>, Refusal>>,
{
    type Output = Result<Response<Guarded<B, Box<Record>>>, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = std::task::ready!(this.exchange.poll(cx));
        let mut record = this.record.take();
        if let (Some(record), Err(Refusal::Elsewhere { .. })) = (&mut record, &result) {
            record.line = None; // The activator that serves the request writes the line.
        }
        if let Some(record) = &mut record {
            record.code = match &result {
                Ok(response) => response.status().as_u16(),
                Err(refusal) => refusal.status().as_u16(),
            };
        }
        Poll::Ready(result.map(|response| response.map(|body| Guarded::new(body, record))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::call;
    use crate::registry::revision::fixture;
    use http::StatusCode;
    use http_body_util::{BodyExt, Full};
    use parking_lot::Mutex;
    use std::collections::BTreeMap;

    fn config(enabled: &str, template: &str) -> Arc<Observability> {
        let data = BTreeMap::from([
            ("logging.enable-request-log".to_owned(), enabled.to_owned()),
            ("logging.request-log-template".to_owned(), template.to_owned()),
        ]);
        Arc::new(Observability::from_map(&data).expect("supported"))
    }

    /// Goal: responses, errors and disconnected clients are logged. A configuration change applies to the next request.
    #[tokio::test]
    async fn each_request_is_logged_once_by_the_present_configuration() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = lines.clone();
        let (sender, receiver) = watch::channel(config("true", "{{.Response.Code}} {{.Response.Size}}"));
        let inner = tower::service_fn(|call: Box<Call>| async move {
            match call.request.uri().path() {
                "/refused" => Err(Refusal::QueueFull { bound: 1 }),
                "/never" => std::future::pending().await,
                _ => {
                    let mut response = Response::new(Full::new(Bytes::from_static(b"hello")));
                    *response.status_mut() = StatusCode::CREATED;
                    Ok(response)
                }
            }
        });
        let mut log = RequestLog::new(inner, receiver, Arc::new(move |line| written.lock().push(line)));
        let revision = fixture::revision(|_| {});
        let call = |path: &'static str| {
            let mut call = call::fixture::call(&revision);
            *call.request.uri_mut() = http::Uri::from_static(path);
            call
        };
        let whole = log.call(call("/")).await.expect("answered");
        assert!(lines.lock().is_empty(), "the body has not ended");
        whole.into_body().collect().await.expect("whole");
        assert!(log.call(call("/refused")).await.is_err());
        let mut never = tokio_test::task::spawn(log.call(call("/never")));
        assert!(never.poll().is_pending());
        drop(never);
        drop(log.call(call("/")).await.expect("answered"));
        assert_eq!(*lines.lock(), ["201 5\n", "503 0\n", "500 0\n", "201 0\n"]);

        sender.send_replace(config("false", "x"));
        while log.template.load().is_some() {
            tokio::task::yield_now().await;
        }
        drop(log.call(call("/")).await.expect("answered"));
        assert_eq!(lines.lock().len(), 4);
    }
}
