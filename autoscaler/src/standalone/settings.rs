//! Resolved settings of a ZeroScaler apart from its scale.

use common_api::zeroscaler::{ProbeChoice, Timeouts, Wake};
use std::time::Duration;

/// Port of the pods, proof of their readiness, and wait limits of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Port of the pods. `None`: to be found.
    pub(crate) port: Option<PortReference>,
    /// Readiness probe of a pod.
    pub(crate) probe: ProbeChoice,
    /// Maximum wait for a pod.
    pub(crate) wake_timeout: Duration,
    /// Time limits of the exchange.
    pub(crate) timeouts: Timeouts,
    /// Maximum number of requests that one activator holds; at least 1.
    pub(crate) max_held: u32,
}

/// Reference to a container port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PortReference {
    /// Port number.
    Number(u16),
    /// Port name.
    Name(String),
}

impl Settings {
    /// Builds the settings of an object with these parts.
    pub(crate) fn new(wake: &Wake, timeouts: &Timeouts) -> Self {
        Self {
            port: None,
            probe: wake.probe(),
            wake_timeout: wake.timeout(),
            timeouts: timeouts.clone(),
            max_held: wake.max_held(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(&Wake::default(), &Timeouts::default())
    }
}
