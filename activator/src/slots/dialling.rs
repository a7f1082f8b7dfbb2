//! Opening a session with one sibling: again and again, ever less often, until there is one or it is listed no longer.

use super::Shared;
use super::session::{self, PROTOCOL};
use activator_core::slots::Peer;
use activator_net::{DialError, dial};
use common_runtime::failure_log::FailureLog;
use http::HeaderMap;
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

/// Dials until a session has been opened. `pause`: the wait after sessions that did not last, if the last one did not.
pub(super) async fn run(shared: Arc<Shared>, peer: Peer, address: SocketAddr, at_once: bool, pause: Option<Duration>) {
    let first = if at_once { pause } else { pause.max(Some(SECOND)) };
    if let Some(first) = first {
        sleep(first).await;
    }
    let mut wait = pause.unwrap_or(BACKOFF.0);
    let mut log = FailureLog::of(format!("the way to activator {address}, which pods are shared with"));
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
                let foreign = !fields.contains_key(PROTOCOL);
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
