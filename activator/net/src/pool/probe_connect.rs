//! Connects for probes: one that is not answered in time goes on, and the next probe finds it.
//!
//! However far the pod is, it is reached; and however short the time in which the network was not there, that connect
//! is not waited for, since a new one runs beside it.

use crate::tcp::connect::{Connected, Connecting};
use activator_core::backends::Outcome;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a connect may go on beside others: until the kernel has repeated itself twice.
const HELD_MAX: Duration = Duration::from_secs(4);

/// The connects of one pod's probes, to any of its ports. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct ProbeConnects {
    /// One that was given up, and may be answered yet.
    held: Arc<Mutex<Option<Connecting>>>,
}

impl ProbeConnects {
    /// Connects within `timeout`.
    ///
    /// # Errors
    /// The pod could not be connected to: how the probe ended.
    pub(super) async fn connect(&self, address: SocketAddr, timeout: Duration) -> Result<Connected, Outcome> {
        let held = self.held.lock().take().filter(|held| held.address == address && held.start.elapsed() < HELD_MAX);
        let begun = Connecting::begin(address).map_err(|_| Outcome::Unanswered)?;
        let connecting: Vec<Connecting> = held.into_iter().chain([begun]).collect();
        let ended = futures::future::select_all(connecting.iter().map(|connecting| Box::pin(connecting.ended())));
        let _ = tokio::time::timeout(timeout, ended).await;
        let Some(ended) = connecting.iter().position(Connecting::has_ended) else {
            *self.held.lock() = connecting.into_iter().next(); // The older one.
            return Err(Outcome::Unanswered);
        };
        let ended = connecting.into_iter().nth(ended).ok_or(Outcome::Unanswered)?;
        let start = ended.start;
        ended.finish().map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Outcome::Refused(start.elapsed()),
            _ => Outcome::Unanswered,
        })
    }
}
