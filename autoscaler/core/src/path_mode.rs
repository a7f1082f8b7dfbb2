//! Decides whether traffic goes through the activators or directly to the pods.
//!
//! The mode is `Serve` if pods are wanted and there is spare capacity (an excess burst capacity of 0 or more), and
//! `Proxy` otherwise.
//!
//! # Differences from Knative
//!
//! - Knative switches to `Proxy` whenever the wanted scale is unknown, so each restart moves all traffic of a cluster
//!   onto the activators and back. With [`Input::keep_when_unknown`] the mode stays as it is (standalone).
//! - A decider that has just taken over does not know the load yet. The mode stays until its window is full.
//!
//! Both apply only while pods are wanted or the wanted scale is unknown. At a wanted scale of zero the mode is always
//! `Proxy`.

use serde::Serialize;

/// Path of a revision's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum PathMode {
    /// Through the activators.
    Proxy,
    /// Directly to the pods.
    Serve,
}

/// Input of [`path_mode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Scale that [`crate::scale_to_zero`] returned; `None` if unknown.
    pub wanted_scale: Option<i32>,
    /// Excess burst capacity of the decider.
    pub excess_burst_capacity: i32,
    /// Current mode; `None` if there is no ServerlessService yet.
    pub present: Option<PathMode>,
    /// True if an unknown scale must not change the mode.
    pub keep_when_unknown: bool,
    /// True if the decider has taken over and its stable window is not full yet.
    pub warming: bool,
}

/// Returns the mode to set.
pub fn path_mode(input: &Input) -> PathMode {
    let keep = input.present.filter(|_| match input.wanted_scale {
        None => input.keep_when_unknown || input.warming,
        Some(scale) => scale > 0 && input.warming,
    });
    keep.unwrap_or(match input.wanted_scale {
        Some(scale) if scale > 0 && input.excess_burst_capacity >= 0 => PathMode::Serve,
        _ => PathMode::Proxy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_goes_straight_to_pods_only_with_capacity_to_spare() {
        use PathMode::{Proxy, Serve};
        // (wanted_scale, EBC, present, keep when unknown, warming) -> mode
        for (wanted_scale, ebc, present, keep, warming, expected) in [
            (Some(1), 0, Some(Proxy), false, false, Serve),
            (Some(1), -1, Some(Serve), false, false, Proxy),
            (Some(0), 5, Some(Serve), false, false, Proxy),
            (None, 5, Some(Serve), false, false, Proxy),
            (None, 5, Some(Serve), true, false, Serve),
            (None, 5, Some(Proxy), true, false, Proxy),
            (None, 5, None, true, false, Proxy),
            (Some(3), 5, Some(Proxy), false, true, Proxy),
            (Some(3), -5, Some(Serve), false, true, Serve),
            (Some(3), 5, None, false, true, Serve),
            (Some(0), 5, Some(Serve), true, true, Proxy), // At zero only the activators can respond.
        ] {
            let input = Input { wanted_scale, excess_burst_capacity: ebc, present, keep_when_unknown: keep, warming };
            assert_eq!(path_mode(&input), expected, "{input:?}");
        }
    }
}
