//! Detected HTTP versions of the pod at an address.

use common::backend::Protocol;
use parking_lot::Mutex;

/// Support of each protocol by the pod, as far as it was detected.
#[derive(Debug, Default)]
pub(crate) struct PodHttp(Mutex<[Option<bool>; 2]>);

impl PodHttp {
    /// Reports whether the pod speaks `protocol`; `None` if that is unknown.
    pub(crate) fn speaks(&self, protocol: Protocol) -> Option<bool> {
        self.0.lock()[protocol as usize]
    }

    /// Records whether the pod speaks `protocol`.
    pub(crate) fn record(&self, protocol: Protocol, speaks: bool) {
        self.0.lock()[protocol as usize] = Some(speaks);
    }
}
