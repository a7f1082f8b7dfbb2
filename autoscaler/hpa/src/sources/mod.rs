//! Sources of a reconcile of a HorizontalPodAutoscaler: the three metrics APIs ([`RestMetrics`]), and the scale
//! subresource of any kind ([`RestScales`]).
//!
//! # Differences from upstream
//!
//! - Up to [`CONCURRENT_MAX`] requests of one reconcile run concurrently. A request that several metrics need is sent
//!   once: cpu and memory of the same pods are one list.
//! - Each call is limited to [`REQUEST_TIMEOUT`]; upstream waits forever and blocks a worker. A request that cannot be
//!   sent within [`SENDING_PERIOD`] fails, so an object with thousands of metrics holds a worker for little longer.

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
pub use rest::REQUEST_TIMEOUT;
pub use scales::{RestScales, ScaleObject};

use futures::stream::{self, StreamExt};
use hpa_core::request::{Reading, Request};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of concurrent requests of one reconcile.
const CONCURRENT_MAX: usize = 8;
/// Time within which a reconcile sends its requests: twice the timeout of a request to a silent API.
const SENDING_PERIOD: Duration = Duration::from_secs(2 * REQUEST_TIMEOUT.as_secs());

impl RestMetrics {
    /// Returns the responses to `requests` in their order, with the time that each took. Equal requests are sent once.
    /// At most [`CONCURRENT_MAX`] run concurrently; requests not sent within [`SENDING_PERIOD`] fail.
    ///
    /// Cancel safe: nothing is written.
    pub async fn readings(&self, namespace: &str, requests: &[Option<Request>]) -> Vec<(Reading, Duration)> {
        let mut distinct: Vec<&Request> = Vec::new();
        for request in requests.iter().flatten() {
            if !distinct.contains(&request) {
                distinct.push(request);
            }
        }
        let deadline = Instant::now() + SENDING_PERIOD;
        let timed = |request| async move {
            let start = Instant::now();
            let reading = match start < deadline {
                true => self.read(namespace, request).await,
                false => {
                    Reading::Failed(format!("not requested: earlier requests took {} s", SENDING_PERIOD.as_secs()))
                }
            };
            (request, reading, start.elapsed())
        };
        // A slow request blocks one slot, but not the requests after it.
        let pending: Vec<_> = distinct.into_iter().map(timed).collect();
        let readings: Vec<_> = stream::iter(pending).buffer_unordered(CONCURRENT_MAX).collect().await;
        let reading = |request: &Option<Request>| {
            let read = request.as_ref().and_then(|request| readings.iter().find(|(known, ..)| *known == request));
            read.map_or((Reading::None, Duration::ZERO), |(_, reading, took)| (reading.clone(), *took))
        };
        requests.iter().map(reading).collect()
    }
}
