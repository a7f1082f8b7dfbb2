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

/// Dials until a session has been opened.
pub(super) async fn run(shared: Arc<Shared>, peer: Peer, address: SocketAddr, at_once: bool) {
    if !at_once {
        sleep(SECOND).await;
    }
    let mut wait = BACKOFF.0;
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
        wait = (wait * 2).min(BACKOFF.1);
    }
}
