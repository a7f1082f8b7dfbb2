//! Opening a session with one sibling: again and again, ever less often, until there is one or it is listed no longer.

use super::Shared;
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

/// Whoever is not to dial first waits so long.
const SECOND: Duration = Duration::from_millis(300);
/// First wait after a failure, and longest one.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The same after somebody has answered who does not know of sessions.
const FOREIGN: Duration = Duration::from_secs(5);
/// A session that ends sooner is one more failure.
pub(super) const LASTS: Duration = Duration::from_secs(1);

/// The wait after one more failure.
pub(super) fn longer(wait: Option<Duration>) -> Duration {
    wait.map_or(BACKOFF.0, |wait| (wait * 2).min(BACKOFF.1))
}

/// Whether an answer is that of somebody who does not know of sessions. 503 does not tell: a sibling without room for more
/// connections answers so whatever is asked, and a mesh does for one that is not there. (One of Knative's says 404: no
/// revision has its address as a host.)
fn is_foreign(status: StatusCode, fields: &HeaderMap) -> bool {
    !fields.contains_key(PROTOCOL) && status != StatusCode::SERVICE_UNAVAILABLE
}

/// Dials until a session has been opened. `pause`: the wait after sessions that did not last, if the last one did not.
pub(super) async fn run(shared: Arc<Shared>, peer: Peer, address: SocketAddr, at_once: bool, pause: Option<Duration>) {
    let first = if at_once { pause } else { pause.max(Some(SECOND)) };
    if let Some(first) = first {
        sleep(first).await;
    }
    let mut wait = pause.unwrap_or(BACKOFF.0);
    let mut log = FailureLog::of(format!("the way to activator {address}, with which limits are kept"));
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
                tracing::debug!(%peer, %status, foreign, "no session");
                shared.with_roster(|roster, _| roster.answered(&peer, foreign));
                if foreign { FOREIGN } else { wait }
            }
            Err(DialError::Unreachable(error)) => {
                log.failed(&error);
                shared.with_roster(|roster, _| roster.answered(&peer, false));
                wait
            }
        };
        let jitter = rand::rng().random_range(0.75..1.25);
        sleep(pause.mul_f64(jitter)).await;
        wait = longer(Some(wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    /// Goal: a sibling that has no room for clients is not taken for a foreign one, which would end sharing everywhere.
    #[test]
    fn who_has_no_room_is_not_foreign() {
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
