//! Detected HTTP versions of the pod at an address.

use common::backend::Protocol;
use std::sync::atomic::{AtomicU8, Ordering};

/// Support of each protocol by the pod, as far as it was detected.
#[derive(Debug, Default)]
pub(crate) struct PodHttp(AtomicU8);

impl PodHttp {
    /// Reports whether the pod speaks `protocol`; `None` if that is unknown.
    pub(crate) fn speaks(&self, protocol: Protocol) -> Option<bool> {
        let [does, does_not] = bits(protocol);
        match self.0.load(Ordering::Relaxed) & (does | does_not) {
            0 => None,
            known => Some(known == does),
        }
    }

    /// Records whether the pod speaks `protocol`.
    pub(crate) fn record(&self, protocol: Protocol, speaks: bool) {
        let [does, does_not] = bits(protocol);
        let (set, unset) = if speaks { (does, does_not) } else { (does_not, does) };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| Some(bits & !unset | set));
    }
}

fn bits(protocol: Protocol) -> [u8; 2] {
    match protocol {
        Protocol::Http1 => [1, 2],
        Protocol::H2c => [4, 8],
    }
}
