//! Repeats requests after 429 (Too Many Requests), 503 and 504: a few times in quick succession.
//!
//! kube's own policy makes 15 tries over minutes, with pauses that double or that the server requests. So a watch could
//! observe nothing for minutes after the server is back, and a write would be sent without a check that it is still
//! wanted.
//!
//! If the response contains Retry-After (in whole seconds), an overloaded server would reject all of these quick tries.
//! A read-only request then waits for that time, once, if it is at most a second. All other requests are left to the
//! caller.

use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use std::time::Duration;
use tokio::time::Sleep;
use tower::BoxError;
use tower::retry::Policy;

/// First pause; each further pause doubles, and is randomly extended up to threefold.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Tries after the first one.
const TRIES: u32 = 4;

/// Longest wait that the server may request.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Policy of a few quick tries. After that, the caller retries at its own pace and checks itself whether the request is
/// still wanted.
#[derive(Clone)]
pub(super) struct Retries {
    quick: RetryPolicy,
    has_waited: bool,
}

impl Default for Retries {
    fn default() -> Self {
        // The arguments are in the required order, so kube's default is never used.
        Self { quick: RetryPolicy::new(PAUSE_MIN, PAUSE_MAX, TRIES, false).unwrap_or_default(), has_waited: false }
    }
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for Retries {
    type Future = Sleep;

    fn retry(&mut self, request: &mut Request<Body>, answer: &mut Result<Response<B>, BoxError>) -> Option<Sleep> {
        match answer.as_ref().ok().and_then(retry_after) {
            None => self.quick.retry(request, answer),
            Some(wait) if wait <= WAIT_MAX && request.method() == Method::GET && !self.has_waited => {
                self.has_waited = true;
                Some(tokio::time::sleep(wait))
            }
            Some(_) => None,
        }
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Policy::<Request<Body>, Response<B>, BoxError>::clone_request(&mut self.quick, request)
    }
}

/// Returns the wait that the server requests; a value that cannot be parsed means forever.
fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    let is_refusal = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT]
        .contains(&answer.status());
    let header = answer.headers().get(RETRY_AFTER).filter(|_| is_refusal)?;
    let seconds = header.to_str().ok().and_then(|text| text.trim().parse().ok());
    Some(seconds.map_or(Duration::MAX, Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// Goal: a request is repeated a few times within a second and then left to the caller; with Retry-After it is left
    /// at once, except for a short wait of a read-only request.
    #[tokio::test(start_paused = true)]
    async fn a_request_is_repeated_a_few_times_within_a_second() {
        let rows = [
            (Method::PUT, 429, None, TRIES),
            (Method::GET, 503, None, TRIES),
            (Method::GET, 504, None, TRIES),
            (Method::PUT, 429, Some("1"), 0),
            (Method::GET, 429, Some("1"), 1),
            (Method::GET, 503, Some("30"), 0),
            (Method::GET, 503, Some("soon"), 0),
            (Method::GET, 500, None, 0),
            (Method::GET, 200, Some("1"), 0),
        ];
        for (method, code, wait, expected) in rows {
            let mut answer = Response::new(());
            *answer.status_mut() = StatusCode::from_u16(code).expect("a status");
            if let Some(wait) = wait {
                answer.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static(wait));
            }
            let (mut request, mut answer) = (Request::new(Body::empty()), Ok(answer));
            *request.method_mut() = method;
            let (mut policy, start, mut tries) = (Retries::default(), Instant::now(), 0);
            while let Some(pause) = policy.retry(&mut request, &mut answer) {
                pause.await;
                tries += 1;
            }
            assert_eq!(tries, expected, "{code} {wait:?}");
            assert!(start.elapsed() <= WAIT_MAX, "{code}: {:?}", start.elapsed());
        }
    }
}
