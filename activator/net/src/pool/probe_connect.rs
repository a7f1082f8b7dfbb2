//! Connects for probes. A connect that is not answered in time continues, and the next probe can use it.
//!
//! So a distant pod is reached despite a short timeout. After a short network failure, no probe has to wait for the old
//! connect's retransmission, because a new one runs beside it.

use crate::tcp::connect::{Connected, Connecting};
use activator_core::backends::Outcome;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time that a connect continues beside others: the kernel has retransmitted twice by then.
const HELD_MAX: Duration = Duration::from_secs(4);

/// Connects of one pod's probes, to any of its ports. Clones share their state.
#[derive(Clone, Default)]
pub(super) struct ProbeConnects {
    /// A connect that timed out, but may still be answered.
    held: Arc<Mutex<Option<Connecting>>>,
}

impl ProbeConnects {
    /// Connects within `timeout`.
    ///
    /// # Errors
    /// Returns the probe's outcome if the pod could not be connected to.
    pub(super) async fn connect(&self, address: SocketAddr, timeout: Duration) -> Result<Connected, Outcome> {
        let held = self.held.lock().take().filter(|held| held.address == address && held.start.elapsed() < HELD_MAX);
        let begun = Connecting::begin(address).map_err(|_| Outcome::Unanswered)?;
        let connecting: Vec<Connecting> = held.into_iter().chain([begun]).collect();
        let ended = futures::future::select_all(connecting.iter().map(|connecting| Box::pin(connecting.ended())));
        let _ = tokio::time::timeout(timeout, ended).await;
        let Some(ended) = connecting.iter().position(Connecting::has_ended) else {
            *self.held.lock() = connecting.into_iter().next(); // Keep the older one.
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
