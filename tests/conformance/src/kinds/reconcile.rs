//! Shared parts of the kinds of the PodAutoscaler reconciler: the format of annotations, configuration and conditions.

use std::collections::BTreeMap;
use std::time::Duration;

use autoscaler_core::active::Active;
use autoscaler_core::bounds::Bounds;
use common::annotations;
use common::config::AutoscalerConfig;
use serde::Deserialize;

use crate::Mismatch;

/// Annotations or configuration by name.
pub(super) type Map = BTreeMap<String, String>;

/// Parses a configuration. The vectors contain only valid ones.
pub(super) fn config(data: &Map) -> Result<AutoscalerConfig, Mismatch> {
    AutoscalerConfig::from_map(data).map_err(|e| Mismatch::Broken(format!("config: {e}")))
}

/// Returns the limits without the initial scale.
pub(super) fn bounds(map: &Map, config: &AutoscalerConfig, reachability: Reachability) -> Bounds {
    annotations::bounds(map, config, reachability.is_reachable())
}

/// Reachability of a revision by routes. Only `Unreachable` means no.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Reachability {
    #[serde(rename = "")]
    Unknown,
    Reachable,
    Unreachable,
}

impl Reachability {
    pub(super) fn is_reachable(self) -> bool {
        self != Self::Unreachable
    }
}

#[derive(Clone, Copy, Deserialize)]
pub(super) enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    /// Returns the Active condition with this status, unchanged for this time.
    pub(super) fn active(self, seconds: f64) -> Active {
        let age = Duration::from_secs_f64(seconds);
        match self {
            Self::True => Active::True(age),
            Self::False => Active::False(age),
            Self::Unknown => Active::Unknown(age),
        }
    }
}
