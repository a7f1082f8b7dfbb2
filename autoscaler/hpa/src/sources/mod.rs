//! What a pass over a HorizontalPodAutoscaler asks the cluster, behind three small ports.
//!
//! | Port | Question | In a cluster |
//! |---|---|---|
//! | [`MetricSource`] | what do pods, objects or the outside measure? | [`RestMetrics`]: the three metrics APIs |
//! | [`ScaleSource`] | how large is the target, and make it so large | [`RestScales`]: the scale subresource of any kind |
//! | [`PodSource`] | which pods does a selector find? | [`PodCache`](super::pods::PodCache): a watch |
//!
//! Whoever scales by other means than the scale subresource gives another [`ScaleSource`].
//!
//! # Where we differ from upstream
//!
//! - The questions of one pass are asked side by side, [`AT_ONCE`] of them, and what several metrics need is asked once
//!   (cpu and memory of the same pods are one list).
//! - Each call has [`PATIENCE`]; upstream waits for ever, and a worker with it. A question that cannot be asked within
//!   [`ASKED_WITHIN`] fails: an object with thousands of metrics holds a worker for little longer than that.

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

/// Questions of one pass that are under way at once.
const AT_ONCE: usize = 8;
/// How long a pass goes on asking: twice what a question to a silent API takes.
const ASKED_WITHIN: Duration = Duration::from_secs(2 * PATIENCE.as_secs());

/// Answers what metrics measure.
pub trait MetricSource: Send + Sync {
    /// Asks one question about `namespace`. A failure is part of the answer, in upstream's words.
    fn read<'a>(&'a self, namespace: &'a str, request: &'a Request) -> BoxFuture<'a, Reading>;
}

/// Reads and writes how large a target is.
pub trait ScaleSource: Send + Sync {
    /// The scale of a target in `namespace`. Only the group of its API version matters.
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a ObjectReference,
    ) -> BoxFuture<'a, Result<ScaleObject, ScaleError>>;

    /// The same scale once more, after a conflict.
    fn again<'a>(&'a self, read: &'a ScaleObject) -> BoxFuture<'a, Result<ScaleObject, String>>;

    /// Asks for so many replicas, unless the scale has changed since it was read.
    fn write<'a>(&'a self, read: &'a ScaleObject, replicas: i32) -> BoxFuture<'a, WriteResult>;
}

/// Finds pods.
pub trait PodSource: Send + Sync {
    /// The pods of `namespace` that `selector` finds.
    ///
    /// # Errors
    /// They are not known; says why.
    fn select(&self, namespace: &str, selector: &Selector) -> Result<Vec<Pod>, String>;
}

/// All that a pass asks.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// What metrics measure.
    pub metrics: &'a dyn MetricSource,
    /// How large the target is.
    pub scales: &'a dyn ScaleSource,
    /// Its pods.
    pub pods: &'a dyn PodSource,
}

/// Answers to `requests`, in their order, and how long each took. Equal requests are asked once; [`AT_ONCE`] are under
/// way, and what is not asked within [`ASKED_WITHIN`] has failed.
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
    // One that is slow keeps a place, and not those after it.
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
