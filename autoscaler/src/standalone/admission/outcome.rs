//! Outcome of admission.

use crate::cluster::error::Error;
use crate::engine::workload::{NotReady, RefusalAction, Workload};
use crate::standalone::scalers::findings::Finding;
use crate::standalone::traffic::path_proof::CarriedServices;
use common_api::zeroscaler;

/// ZeroScaler that may be acted upon, or the reason why it is not.
pub(in crate::standalone) type Admission = Result<(Workload, AdmissionNotes), Rejection>;

/// Items to report about a ZeroScaler that is acted upon.
#[derive(Default)]
pub(in crate::standalone) struct AdmissionNotes {
    /// Fault despite which the ZeroScaler is served: usually a fault of the newest version, while a former one is in
    /// force.
    pub(in crate::standalone) broken: Option<NotReady>,
    /// Hosts that the ZeroScaler claims and does not have.
    pub(in crate::standalone) lost_hosts: Option<Finding>,
    /// Settings that have no effect.
    pub(in crate::standalone) ignored: Option<String>,
    /// Target of the version in force.
    pub(in crate::standalone) target: zeroscaler::Target,
    /// Services that must lead clients to activators; `None` if the first one does not exist.
    pub(in crate::standalone) services: Option<CarriedServices>,
}

/// Reason why a ZeroScaler is not acted upon.
pub(in crate::standalone) enum Rejection {
    /// The ZeroScaler is refused.
    Refused(NotReady, RefusalAction),
    /// The check failed, usually because something is not known yet.
    Failed(Error),
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
