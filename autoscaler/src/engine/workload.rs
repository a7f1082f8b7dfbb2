//! One workload, as a front end has read it: everything that the decision depends on, as values.
//!
//! Both front ends fill the same [`Workload`], so the rules exist once and never ask where it came from.

use super::parameters::Parameters;
use super::probe::ProbeTarget;
use crate::cluster::facts::{Selector, Target};
use crate::cluster::target_key::TargetKey;
use crate::scale::{Initial, PodOwner, PodSet, SubjectLabels};
use autoscaler_core::active::Active;
use autoscaler_core::engine::Plan;
use autoscaler_core::history::Obstacle;
use autoscaler_core::orders::Wanted;
use autoscaler_core::path_mode::PathMode;
use autoscaler_core::scale_to_zero::ProbeResult;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A workload that can be acted upon.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Kind of its target, as it is written.
    pub(crate) kind: String,
    pub(crate) target_key: TargetKey,
    pub(crate) target: Arc<Target>,
    /// Its own pods.
    pub(crate) pods: PodSet,
    pub(crate) parameters: Parameters,
    /// Labels of its metrics.
    pub(crate) labels: SubjectLabels,
    /// The answer that a decider begins with, if no scale has been reported before.
    pub(crate) initial: Initial,
    /// Path of its traffic; none: nobody has been asked for one yet.
    pub(crate) path: Option<PathState>,
    /// Name of the Service that leads to its pods.
    pub(crate) private_service: String,
    /// Proof that activators are in the path, before the last pod goes; none: the public Service has no name yet.
    pub(crate) probe: Option<Probed>,
    /// Set once replicas may change: not before its public Service is known to be its own.
    pub(crate) may_scale: bool,
    /// Set if scale and path stay as they are until the first decision.
    pub(crate) waits_for_decision: bool,
    /// Metrics that it asks for; none: its load alone scales it.
    pub(crate) metrics: Option<Arc<Plan>>,
    /// Set if everything stays as it is.
    pub(crate) paused: bool,
    /// A wake or a sleep that is to be carried out.
    pub(crate) request: Option<Requested>,
}

impl Workload {
    /// Returns what finds its pods, as text; none: a label of the drop-in does.
    pub(crate) fn selector(&self) -> Option<String> {
        match (&self.pods, &self.target.selector) {
            (PodSet::Selector(labels), _) => {
                let terms: Vec<_> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
                Some(terms.join(","))
            }
            (PodSet::Expressions(_), Selector::Expressions(text)) => Some(text.clone()),
            _ => None,
        }
    }

    /// Returns whose pods count; none: all that have the revision's label.
    pub(crate) fn owner(&self) -> Option<PodOwner> {
        match &self.pods {
            PodSet::Revision(_) => None,
            PodSet::Selector(_) | PodSet::Expressions(_) => Some(self.target_key.owner(&self.target)),
        }
    }
}

/// Where the traffic of a workload should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) mode: PathMode,
    /// Activators that should take part in it.
    pub(crate) activators: i32,
}

/// Where the traffic was asked to go last, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathState {
    pub(crate) mode: PathMode,
    /// Time for which the activators have been in it; zero if they are not.
    pub(crate) proxy_for: Duration,
}

/// What the last pass has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Previous {
    /// Activity of the workload, and since when.
    pub(crate) active: Active,
    /// Time for which it has been reported as given up; none: it is not.
    pub(crate) given_up_for: Option<Duration>,
    /// Set if a scale has been reported, by another process perhaps.
    pub(crate) has_scale: bool,
}

/// One wake or one sleep that an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requested {
    pub(crate) wanted: Wanted,
    /// Time since it was written; zero if that is still to come.
    pub(crate) age: Duration,
    /// Set if a former pass has found it in time.
    pub(crate) is_begun: bool,
}

/// Proof that activators are in the path.
#[derive(Clone)]
pub(crate) enum Probed {
    /// One must answer at the public Service.
    Service(ProbeTarget),
    /// By what the front end knows of activators.
    Known(Arc<dyn PathProof>),
}

/// A front end's own proof for one workload.
pub(crate) trait PathProof: Send + Sync {
    /// Returns what is known now.
    fn proof(&self) -> ProbeResult;

    /// Asks for a proof; the workload is looked at again when there is an answer.
    fn ask(&self);
}

impl fmt::Debug for Probed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(target) => f.debug_tuple("Service").field(target).finish(),
            Self::Known(_) => f.write_str("Known"),
        }
    }
}

/// What there is to do about an object.
#[derive(Debug)]
pub(crate) enum Reading {
    /// Scale it.
    Go(Box<Workload>),
    /// Nothing can be scaled or measured before its Services have names.
    AwaitServices(Box<Parameters>),
    /// Report why it is not scaled, and then that.
    Refuse(NotReady, Afterwards),
}

/// Why an object is not acted upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotReady {
    /// One word, for programs.
    pub(crate) reason: &'static str,
    /// A sentence for people.
    pub(crate) message: String,
    /// The obstacle, in the words of the history.
    pub(crate) obstacle: Obstacle,
}

/// What follows a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// Nothing: what there is stays as it is.
    Stay,
    /// Target and Service are given back, as if the object were deleted; then it is read again.
    GiveBack,
    /// Whatever was made for the object goes; its replicas are not ours to change.
    LetGo,
}
