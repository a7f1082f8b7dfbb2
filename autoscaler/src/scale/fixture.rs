//! Test subjects of decisions.

use super::{Subject, SubjectLabels};
use common::annotations::{self, Annotations};
use common::config::AutoscalerConfig;
use common::scaling::{BurstCapacity, DeciderSpec};

/// Returns a plain pod's revision under default configuration: the activators are always in the path.
pub(crate) fn subject() -> Subject {
    let defaults = annotations::decider_spec(&Annotations::new(), &AutoscalerConfig::default(), 0, true);
    let spec = DeciderSpec { target_burst_capacity: BurstCapacity::Always, ..defaults };
    Subject { spec, labels: SubjectLabels::default() }
}
