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
//! - The questions of one pass are asked side by side, and what several metrics need is asked once (cpu and memory of
//!   the same pods are one list).
//! - Each call has [`PATIENCE`]; upstream waits for ever, and a worker with it.

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
use futures::future::{BoxFuture, join_all};
use hpa_core::pod::Pod;
use hpa_core::reconcile::{ScaleError, WriteResult};
use hpa_core::request::{Reading, Request};
use hpa_core::spec::ObjectReference;
use std::time::Duration;
use tokio::time::Instant;

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

/// Answers to `requests`, in their order, and how long each took. Equal requests are asked once.
///
/// Cancel safe: nothing is written.
pub async fn readings(
    source: &dyn MetricSource,
    namespace: &str,
    requests: &[Option<Request>],
) -> Vec<(Reading, Duration)> {
    let mut distinct: Vec<&Request> = Vec::new();
    for request in requests.iter().flatten() {
        if !distinct.contains(&request) {
            distinct.push(request);
        }
    }
    let timed = |request| async move {
        let start = Instant::now();
        (source.read(namespace, request).await, start.elapsed())
    };
    let answers = join_all(distinct.iter().map(|request| timed(*request))).await;
    let answer = |request: &Option<Request>| {
        let place = request.as_ref().and_then(|request| distinct.iter().position(|other| *other == request));
        place.and_then(|place| answers.get(place)).cloned().unwrap_or((Reading::None, Duration::ZERO))
    };
    requests.iter().map(answer).collect()
}
