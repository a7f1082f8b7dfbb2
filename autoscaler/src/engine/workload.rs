//! A workload as read by a front end: all inputs of the decision, as values.
//!
//! Both front ends fill the same [`Workload`], so the rules exist once and do not depend on the front end.

use crate::cluster::facts::{Selector, Target};
use crate::cluster::target_key::TargetKey;
use crate::scale::{Initial, PodOwner, PodSet, SubjectLabels};
use autoscaler_core::active::Active;
use autoscaler_core::engine::Plan;
use autoscaler_core::history::Obstacle;
use autoscaler_core::manual_requests::Wanted;
use autoscaler_core::path_mode::PathMode;
use common::scaling::{Bounds, DeciderSpec};
use std::sync::Arc;
use std::time::Duration;

/// A workload that can be reconciled.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Kind of its target, as written by the user.
    pub(crate) kind: String,
    pub(crate) target_key: TargetKey,
    pub(crate) target: Arc<Target>,
    /// Pods that belong to it.
    pub(crate) pods: PodSet,
    pub(crate) parameters: Parameters,
    /// Labels of its metrics.
    pub(crate) labels: SubjectLabels,
    /// Initial scale of a new decider, if no scale has been reported before.
    pub(crate) initial: Initial,
    /// Path of its traffic; none: not requested yet.
    pub(crate) path: Option<PathState>,
    /// Name of the Service that leads to its pods.
    pub(crate) private_service: String,
    /// Set once replicas may change: not before its public Service is known to be its own.
    pub(crate) may_scale: bool,
    /// Set if scale and path stay unchanged until the first decision.
    pub(crate) waits_for_decision: bool,
    /// Requested metrics; none: the load alone scales it.
    pub(crate) metrics: Option<Arc<Plan>>,
    /// Set if scaling and routing are suspended.
    pub(crate) paused: bool,
    /// Pending request to wake or sleep.
    pub(crate) request: Option<Requested>,
}

impl Workload {
    /// Returns the selector of its pods as text; none: its pods are found by the revision label.
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

    /// Returns the owner whose pods count; none: all pods with the revision's label count.
    pub(crate) fn owner(&self) -> Option<PodOwner> {
        match &self.pods {
            PodSet::Revision(_) => None,
            PodSet::Selector(_) | PodSet::Expressions(_) => Some(self.target_key.owner(&self.target)),
        }
    }
}

/// All inputs of the rules for a workload, apart from its state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameters {
    pub(crate) decider: DeciderSpec,
    /// Minimum and maximum scale, including a pending initial scale.
    pub(crate) bounds: Bounds,
    /// Number of ready pods that make the workload active.
    pub(crate) min_ready: i32,
    /// Set if scale to zero is enabled.
    pub(crate) scale_to_zero: bool,
    /// Longest time until the workload becomes ready.
    pub(crate) activation_timeout: Duration,
    /// Time for which the last pod stays while the path moves.
    pub(crate) grace_period: Duration,
    /// Time for which the last pod stays by request of the user.
    pub(crate) pod_retention: Duration,
    /// Set if the path is probed before the last pod is removed.
    pub(crate) probe_needed: bool,
    /// Set if the private Service is scraped.
    pub(crate) scraped: bool,
}

/// Desired path of a workload's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) mode: PathMode,
    /// Desired number of activators in the path.
    pub(crate) activators: i32,
}

/// Last requested path of the traffic, and its known state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathState {
    pub(crate) mode: PathMode,
    /// Time for which the activators have been in the path; zero if they are not.
    pub(crate) proxy_for: Duration,
}

/// State that the last reconcile reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Previous {
    /// Activity of the workload, with its duration.
    pub(crate) active: Active,
    /// Time for which a timed-out wake has been reported; none: none is.
    pub(crate) given_up_for: Option<Duration>,
    /// Set if a scale has been reported, possibly by another process.
    pub(crate) has_scale: bool,
}

/// Operator's request for one wake or one sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requested {
    pub(crate) wanted: Wanted,
    /// Time since it was written; zero if its time is in the future.
    pub(crate) age: Duration,
    /// Set if an earlier reconcile accepted it in time.
    pub(crate) is_begun: bool,
}

/// Next step for an object that was read.
#[derive(Debug)]
pub(crate) enum Reading {
    /// Scale it.
    Go(Box<Workload>),
    /// Wait: nothing can be scaled or measured before its Services have names.
    AwaitServices(Box<Parameters>),
    /// Report why it is not scaled, then do this.
    Refuse(NotReady, RefusalAction),
}

/// Reason why an object is not scaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotReady {
    /// Reason in one word, for programs.
    pub(crate) reason: &'static str,
    /// Message for people.
    pub(crate) message: String,
    /// Obstacle, for the history.
    pub(crate) obstacle: Obstacle,
}

/// Action after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalAction {
    /// Leaves everything unchanged.
    Stay,
    /// Restores target and Service, as if the object were deleted, and reads the object again.
    Release,
    /// Deletes everything that was made for the object; its replicas are not ours to change.
    Abandon,
}
