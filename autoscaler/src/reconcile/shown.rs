//! The objects that ask for a scale, for whoever shows them.

use common::RevisionKey;
use common_api::ZeroScaler;
use common_api::zeroscaler::ZeroScalerStatus;
use std::sync::Arc;

/// All objects that ask for a scale.
pub(crate) trait Objects: Send + Sync + 'static {
    /// All that are known, whoever leads them.
    fn keys(&self) -> Vec<RevisionKey>;

    /// A number that changes with the object; none: there is no such object.
    fn version(&self, key: &RevisionKey) -> Option<u64>;

    /// One, as it is now.
    fn look(&self, key: &RevisionKey) -> Option<Looked>;
}

/// One object.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    /// It.
    pub(crate) object: Arc<ZeroScaler>,
    /// Its status: as it is about to be written, of one that this process leads; else as it was written last.
    pub(crate) status: ZeroScalerStatus,
    /// Since when it is awake, asleep or on its way, RFC 3339.
    pub(crate) since: Option<String>,
}
