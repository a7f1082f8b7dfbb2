//! Helpers shared by the tests of several modules.

pub(crate) mod scenario;

use crate::measure::MetricInputs;
use crate::options::Options;
use crate::pod::Pod;
use crate::tolerance::Tolerances;

pub(crate) const EVEN: Tolerances = Tolerances { up: 0.1, down: 0.1 };

/// Returns inputs for this many replicas in spec and status of the scale.
pub(crate) fn inputs<'a>(
    options: &'a Options,
    replicas: i32,
    tolerances: Tolerances,
    pods: &'a [&'a Pod],
) -> MetricInputs<'a> {
    let (spec_replicas, status_replicas) = (replicas, replicas);
    MetricInputs { now: scenario::NOW, options, tolerances, namespace: "shop", spec_replicas, status_replicas, pods }
}
