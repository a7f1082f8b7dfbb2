//! Objects that request a scale, for display.

use common::RevisionKey;
use common_api::ZeroScaler;
use common_api::zeroscaler::ZeroScalerStatus;
use std::sync::Arc;

/// All objects that request a scale.
pub(crate) trait Objects: Send + Sync + 'static {
    /// Returns all known keys, whichever process owns them.
    fn keys(&self) -> Vec<RevisionKey>;

    /// Returns a number that changes with the object; none: it does not exist.
    fn version(&self, key: &RevisionKey) -> Option<u64>;

    /// Returns the present state of an object.
    fn view(&self, key: &RevisionKey) -> Option<ObjectView>;
}

/// State of an object.
#[derive(Clone, Debug)]
pub(crate) struct ObjectView {
    pub(crate) object: Arc<ZeroScaler>,
    /// Its status: the next one to be written, if this process owns it; else the last written one.
    pub(crate) status: ZeroScalerStatus,
    /// Time at which its state (awake, asleep or in transition) began, RFC 3339.
    pub(crate) since: Option<String>,
}
