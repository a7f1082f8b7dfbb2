//! What a ZeroScaler says beside the scale, resolved.

use common_api::zeroscaler::{ProbeChoice, Timeouts, Wake};
use std::time::Duration;

/// Where its pods take requests, how they are proven ready, and how long requests may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Port of the pods; none: to be found.
    pub(crate) port: Option<PortReference>,
    /// How a pod is proven ready.
    pub(crate) probe: ProbeChoice,
    /// Longest wait for a pod.
    pub(crate) wake_timeout: Duration,
    /// Bounds of the exchange.
    pub(crate) timeouts: Timeouts,
    /// Most requests that one activator holds; at least 1.
    pub(crate) max_held: u32,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PortReference {
    /// By number.
    Number(u16),
    /// By name.
    Name(String),
}

impl Settings {
    /// The settings of an object with these parts.
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
