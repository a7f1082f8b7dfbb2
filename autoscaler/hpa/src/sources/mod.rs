//! Sources of a reconcile of a HorizontalPodAutoscaler, behind three small ports.
//!
//! | Port | Purpose | In a cluster |
//! |---|---|---|
//! | [`MetricSource`] | measurements of pods, objects or external systems | [`RestMetrics`]: the three metrics APIs |
//! | [`ScaleSource`] | reads and writes the target's scale | [`RestScales`]: the scale subresource of any kind |
//! | [`PodSource`] | pods that a selector matches | [`PodCache`](super::pods::PodCache): a watch |
//!
//! A caller that scales by other means than the scale subresource supplies its own [`ScaleSource`].
//!
//! # Differences from upstream
//!
//! - The requests of one reconcile run concurrently, [`AT_ONCE`] of them. A request that several metrics need is sent
//!   once: cpu and memory of the same pods are one list.
//! - Each call is limited to [`PATIENCE`]; upstream waits forever and blocks a worker. A request that cannot be sent
//!   within [`ASKED_WITHIN`] fails, so an object with thousands of metrics holds a worker for little longer than that.

mod mapping;
mod metrics;
mod rest;
mod scales;
mod shapes;
#[cfg(test)]
mod tests;
mod wording;

pub use mapping::Mapper;
pub use metrics::RestMetrics;
pub use rest::PATIENCE;
pub use scales::{RestScales, ScaleObject};

use common::labels::Selector;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use hpa_core::pod::Pod;
use hpa_core::reconcile::{ScaleError, WriteResult};
use hpa_core::request::{Reading, Request};
use hpa_core::spec::ObjectReference;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of concurrent requests of one reconcile.
const AT_ONCE: usize = 8;
/// Time within which a reconcile sends requests: twice the timeout of a request to a silent API.
const ASKED_WITHIN: Duration = Duration::from_secs(2 * PATIENCE.as_secs());

/// Source of measurements.
pub trait MetricSource: Send + Sync {
    /// Sends one request about `namespace`. A failure is part of the reading, in upstream's words.
    fn read<'a>(&'a self, namespace: &'a str, request: &'a Request) -> BoxFuture<'a, Reading>;
}

/// Reads and writes the scale of a target.
pub trait ScaleSource: Send + Sync {
    /// Reads the scale of a target in `namespace`. Only the group of its API version matters.
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a ObjectReference,
    ) -> BoxFuture<'a, Result<ScaleObject, ScaleError>>;

    /// Reads the same scale again after a conflict.
    fn again<'a>(&'a self, read: &'a ScaleObject) -> BoxFuture<'a, Result<ScaleObject, String>>;

    /// Writes the replicas, unless the scale has changed since it was read.
    fn write<'a>(&'a self, read: &'a ScaleObject, replicas: i32) -> BoxFuture<'a, WriteResult>;
}

/// Source of pods.
pub trait PodSource: Send + Sync {
    /// Returns the pods of `namespace` that `selector` matches.
    ///
    /// # Errors
    /// Returns the reason why the pods are unknown.
    fn select(&self, namespace: &str, selector: &Selector) -> Result<Vec<Pod>, String>;
}

/// All sources of a reconcile.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// Source of measurements.
    pub metrics: &'a dyn MetricSource,
    /// Source of the target's scale.
    pub scales: &'a dyn ScaleSource,
    /// Source of the target's pods.
    pub pods: &'a dyn PodSource,
}

/// Returns the responses to `requests` in their order, with the time that each took. Equal requests are sent once. At
/// most [`AT_ONCE`] run concurrently; requests not sent within [`ASKED_WITHIN`] fail.
///
/// Cancel safe: nothing is written.
pub async fn readings(
    source: &dyn MetricSource,
    namespace: &str,
    requests: &[Option<Request>],
) -> Vec<(Reading, Duration)> {
    let mut distinct: Vec<&Request> = Vec::new();
    let mut places: HashMap<&Request, usize> = HashMap::new();
    for request in requests.iter().flatten() {
        places.entry(request).or_insert_with(|| {
            distinct.push(request);
            distinct.len() - 1
        });
    }
    let until = Instant::now() + ASKED_WITHIN;
    let timed = |(place, request)| async move {
        let start = Instant::now();
        let answer = if start < until { source.read(namespace, request).await } else { unasked(request) };
        (place, (answer, start.elapsed()))
    };
    // A slow request blocks one slot, but not the requests after it.
    let questions: Vec<_> = distinct.into_iter().enumerate().map(timed).collect();
    let answers: HashMap<usize, _> = stream::iter(questions).buffer_unordered(AT_ONCE).collect().await;
    let answer = |request: &Option<Request>| {
        let place = request.as_ref().and_then(|request| places.get(request));
        place.and_then(|place| answers.get(place)).cloned().unwrap_or((Reading::None, Duration::ZERO))
    };
    requests.iter().map(answer).collect()
}

fn unasked(request: &Request) -> Reading {
    let seconds = ASKED_WITHIN.as_secs();
    request.failed(format!("not asked: the questions before it took {seconds} s"))
}
