//! What a front end has read of one PodAutoscaler: everything that the decision depends on, as values.
//!
//! Both front ends fill the same [`Workload`], so the rules exist once and never ask where it came from.

use super::parameters::Parameters;
use super::probe::ProbeTarget;
use crate::reconcile::stores::facts::{Selector, Target};
use crate::reconcile::stores::target_key::TargetKey;
use crate::scale::{Initial, PodOwner, PodSet, SubjectLabels};
use autoscaler_core::engine::Plan;
use autoscaler_core::history::Obstacle;
use autoscaler_core::orders::Wanted;
use autoscaler_core::scale_to_zero::ProbeResult;
use common::RevisionKey as Key;
use common::hosts::claims::Refusal;
use common_api::zeroscaler::Request;
use common_api::{PodAutoscaler, ServerlessService};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A PodAutoscaler that can be acted upon.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// What it asks for, defaults filled in; perhaps a former version.
    pub(crate) object: Arc<PodAutoscaler>,
    pub(crate) target_key: TargetKey,
    pub(crate) target: Arc<Target>,
    /// Which pods are its own.
    pub(crate) pods: PodSet,
    pub(crate) parameters: Parameters,
    /// What its metrics are labelled with.
    pub(crate) labels: SubjectLabels,
    /// The answer that a decider begins with, if no scale has been told of before.
    pub(crate) initial: Initial,
    /// Its ServerlessService, if there is one yet.
    pub(crate) serverless: Option<Arc<ServerlessService>>,
    /// Name of the Service that leads to its pods.
    pub(crate) private_service: String,
    /// Proof that activators are in the path, before the last pod goes; none: the public Service has no name yet.
    pub(crate) probe: Option<Probed>,
    /// Whether replicas may change already: not before its public Service is known to be its own.
    pub(crate) may_scale: bool,
    /// Whether scale and path stay as they are until the first decision.
    pub(crate) waits_for_decision: bool,
    /// What it asks the metrics for; none: its load alone scales it.
    pub(crate) metrics: Option<Arc<Plan>>,
    /// What is wrong, where it is served all the same: mostly with the present version, while a former one is in force.
    pub(crate) broken: Option<NotReady>,
    /// Hosts that it asks for and does not have.
    pub(crate) lost_hosts: Vec<LostHost>,
    /// Whether everything stays as it is.
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

/// One wake or one sleep that an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requested {
    /// What.
    pub(crate) wanted: Wanted,
    /// As it is written.
    pub(crate) written: Request,
    /// How long ago; zero if that is still to come.
    pub(crate) age: Duration,
    /// Whether a former pass has found it in time.
    pub(crate) is_begun: bool,
}

/// How it is proven that activators are in the path.
#[derive(Clone)]
pub(crate) enum Probed {
    /// One must answer at the public Service.
    Service(ProbeTarget),
    /// By what the front end knows of activators.
    Known(Arc<dyn PathProof>),
}

/// A front end's own proof for one revision.
pub(crate) trait PathProof: Send + Sync {
    /// What is known now.
    fn proof(&self) -> ProbeResult;

    /// Asks whoever can prove it; the revision is looked at again when there is an answer.
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

/// A host that a PodAutoscaler asks for and does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LostHost {
    /// Somebody else has it.
    Taken { host: String, owner: Key },
    /// Its namespace may not have it.
    Refused { host: String, why: Refusal },
}

/// What there is to do about a PodAutoscaler.
#[derive(Debug)]
pub(crate) enum Reading {
    /// Scale it.
    Go(Box<Workload>),
    /// Its ServerlessService must name its Services first.
    AwaitServices(Box<Unserved>),
    /// Say why it is not scaled, and then that.
    Refuse(NotReady, Afterwards),
}

/// A PodAutoscaler whose ServerlessService names no private Service.
#[derive(Debug)]
pub(crate) struct Unserved {
    /// What it asks for, defaults filled in.
    pub(crate) object: Arc<PodAutoscaler>,
    pub(crate) parameters: Parameters,
    /// Its ServerlessService, if there is one yet.
    pub(crate) serverless: Option<Arc<ServerlessService>>,
}

/// Why a PodAutoscaler is not acted upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotReady {
    /// Reason of its `Ready` condition.
    pub(crate) reason: &'static str,
    /// Message of it.
    pub(crate) message: String,
    /// What stands in the way, in the words of the history.
    pub(crate) obstacle: Obstacle,
}

/// What follows a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// Nothing: what there is stays as it is.
    Stay,
    /// Target and Service are given back, as if it were deleted; then it is read again.
    GiveBack,
    /// Whatever was made for it goes; its replicas are none of our business.
    LetGo,
}
