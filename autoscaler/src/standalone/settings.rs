//! What a ZeroScaler says beside the scale, resolved.

use common_api::zeroscaler::{ProbeChoice, Wake};
use std::time::Duration;

/// Where its pods take requests, how they are proven ready, and how long requests may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Port of the pods; none: to be found.
    pub(crate) port: Option<PortReference>,
    /// How a pod is proven ready.
    pub(crate) probe: ProbeChoice,
    /// Longest duration of a request, holding included.
    pub(crate) timeout: Duration,
    /// Longest wait for the first byte of a response; none: no limit.
    pub(crate) response_start_timeout: Option<Duration>,
    /// Longest silence in a response; none: no limit.
    pub(crate) idle_timeout: Option<Duration>,
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

impl From<&Wake> for Settings {
    fn from(wake: &Wake) -> Self {
        Self {
            port: None,
            probe: wake.probe(),
            timeout: wake.timeout(),
            response_start_timeout: wake.response_start(),
            idle_timeout: wake.idle(),
            max_held: wake.max_held(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::from(&Wake::default())
    }
}
