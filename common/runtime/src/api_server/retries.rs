//! Requests that the client repeats by itself, after 429 (Too Many Requests), 503 and 504: a few times at once.
//!
//! kube's own policy makes 15 tries, with pauses that double, or that are as long as the server says, for minutes. A
//! watch would see nothing for as long after the server is back, and a write would be sent although nobody has asked
//! again whether it is still wanted.
//!
//! An answer that says how long to wait (Retry-After, in whole seconds) is not followed by another try here: an
//! overloaded server would refuse all of them.

use http::header::RETRY_AFTER;
use http::{Request, Response};
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use std::time::Duration;
use tokio::time::Sleep;
use tower::BoxError;
use tower::retry::Policy;

/// First pause; each is twice as long as the one before, and up to three times that by chance.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Tries after the first one.
const TRIES: u32 = 4;

/// A few tries at once; beyond that whoever asks has a pace of its own, and asks itself whether it still wants it.
#[derive(Clone)]
pub(super) struct Retries(RetryPolicy);

impl Default for Retries {
    fn default() -> Self {
        // These are in order, which is all that is demanded: kube's default never comes about.
        Self(RetryPolicy::new(PAUSE_MIN, PAUSE_MAX, TRIES, false).unwrap_or_default())
    }
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for Retries {
    type Future = Sleep;

    fn retry(&mut self, request: &mut Request<Body>, answer: &mut Result<Response<B>, BoxError>) -> Option<Sleep> {
        let says_when = answer.as_ref().is_ok_and(|answer| answer.headers().contains_key(RETRY_AFTER));
        if says_when { None } else { self.0.retry(request, answer) }
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Policy::<Request<Body>, Response<B>, BoxError>::clone_request(&mut self.0, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// Goal: a request is repeated a few times within a second and then left to whoever asked, and at once where the
    /// server says how long to wait.
    #[tokio::test(start_paused = true)]
    async fn few_tries_are_made_and_soon() {
        let rows = [
            (429, None, TRIES),
            (503, None, TRIES),
            (504, None, TRIES),
            (429, Some("1"), 0),
            (503, Some("30"), 0),
            (500, None, 0),
            (200, None, 0),
        ];
        for (code, wait, expected) in rows {
            let mut answer = Response::new(());
            *answer.status_mut() = http::StatusCode::from_u16(code).expect("a status");
            if let Some(wait) = wait {
                answer.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static(wait));
            }
            let (mut request, mut answer) = (Request::new(Body::empty()), Ok(answer));
            let (mut policy, start, mut tries) = (Retries::default(), Instant::now(), 0);
            while let Some(pause) = policy.retry(&mut request, &mut answer) {
                pause.await;
                tries += 1;
            }
            assert_eq!(tries, expected, "{code} {wait:?}");
            assert!(start.elapsed() < Duration::from_secs(1), "{code}: {:?}", start.elapsed());
        }
    }
}
