//! Dialling of one sibling, with growing intervals, until a session opens or the sibling is no longer listed.

use super::Holders;
use super::session::{self, PROTOCOL};
use activator_core::holders::Peer;
use activator_net::{DialError, dial};
use common_runtime::failure_log::FailureLog;
use http::{HeaderMap, StatusCode};
use rand::RngExt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Delay before the first dial, unless this side must dial at once.
const FIRST_DELAY: Duration = Duration::from_millis(300);
/// First and longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Wait after a response of a peer that does not know sessions.
const FOREIGN_PAUSE: Duration = Duration::from_secs(5);
/// Minimum duration of a session. An earlier end counts as one more failure.
pub(super) const SESSION_MIN: Duration = Duration::from_secs(1);

/// Returns the wait after one more failure.
pub(super) fn next_backoff(wait: Option<Duration>) -> Duration {
    wait.map_or(BACKOFF.0, |wait| (wait * 2).min(BACKOFF.1))
}

/// Reports whether a response comes from a peer that does not know sessions. A 503 proves nothing: a sibling without
/// room for more connections sends it for every request, and so does a mesh for an absent peer. (Knative's activator
/// sends a 404, since no revision has the dialled address as its host.)
fn is_foreign(status: StatusCode, fields: &HeaderMap) -> bool {
    !fields.contains_key(PROTOCOL) && status != StatusCode::SERVICE_UNAVAILABLE
}

/// Dials until a session opens. `pause`: first wait, set if earlier sessions ended too soon.
pub(super) async fn run(shared: Arc<Holders>, peer: Peer, address: SocketAddr, at_once: bool, pause: Option<Duration>) {
    let first = if at_once { pause } else { pause.max(Some(FIRST_DELAY)) };
    if let Some(first) = first {
        sleep(first).await;
    }
    let mut wait = pause.unwrap_or(BACKOFF.0);
    let mut log = FailureLog::for_operation(format!("the session with activator {address} for shared limits"));
    loop {
        let pause = match dial(address, shared.parts.address, PROTOCOL, HeaderMap::new()).await {
            Ok(io) => match session::open(&shared, io, &peer).await {
                Ok(()) => return,
                Err(error) => {
                    log.failed(&error);
                    wait
                }
            },
            Err(DialError::Refused(status, fields)) => {
                let foreign = is_foreign(status, &fields);
                tracing::debug!(%peer, %status, foreign, "another activator refused a session");
                shared.with_membership(|membership, _| membership.record_dial(&peer, foreign));
                if foreign { FOREIGN_PAUSE } else { wait }
            }
            Err(DialError::Unreachable(error)) => {
                log.failed(&error);
                shared.with_membership(|membership, _| membership.record_dial(&peer, false));
                wait
            }
        };
        let jitter = rand::rng().random_range(0.75..1.25);
        sleep(pause.mul_f64(jitter)).await;
        wait = next_backoff(Some(wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    /// Goal: a sibling without room for connections is not taken for a foreign activator, which would end sharing
    /// everywhere.
    #[test]
    fn a_peer_with_our_header_or_a_503_is_not_foreign() {
        let ours = HeaderMap::from_iter([(HeaderName::from_static(PROTOCOL), HeaderValue::from_static("1"))]);
        let none = HeaderMap::new();
        for (status, fields, foreign) in [
            (StatusCode::NOT_FOUND, &none, true),
            (StatusCode::INTERNAL_SERVER_ERROR, &none, true),
            (StatusCode::SERVICE_UNAVAILABLE, &none, false),
            (StatusCode::FORBIDDEN, &ours, false),
            (StatusCode::SERVICE_UNAVAILABLE, &ours, false),
        ] {
            assert_eq!(is_foreign(status, fields), foreign, "{status}");
        }
    }
}
