//! What a reconciler made of a decision: the last step between a wish and the replicas.

use serde::{Deserialize, Serialize};

use crate::bounds::Bounds;
use crate::scale_to_zero::Reason;

/// What was wanted of the target, and what was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// The scale after bounds and the way to zero; none: unknown, so nothing is changed.
    pub wanted: Option<i32>,
    /// Replicas of the target before; none: it was not looked at.
    pub replicas: Option<i32>,
    /// Whether the API server has accepted the wanted scale as a change.
    pub patched: bool,
    /// Fewest pods allowed.
    pub min: i32,
    /// Most pods allowed; none: no limit.
    pub max: Option<i32>,
    /// Why so, or why not.
    pub because: Cause,
}

impl Action {
    /// Nothing was wanted, since something stands in the way.
    pub fn refused(obstacle: Obstacle) -> Self {
        let because = Cause::Obstacle(obstacle);
        Self { wanted: None, replicas: None, patched: false, min: 0, max: None, because }
    }

    /// What `outcome` asks for, which is not done yet.
    pub fn planned(want: Option<i32>, replicas: i32, bounds: Bounds, reason: Reason) -> Self {
        let (replicas, because) = (Some(replicas), Cause::Rule(reason));
        Self { wanted: want, replicas, patched: false, min: bounds.min, max: bounds.max, because }
    }

    /// Whether `next` only confirms this one: nothing was written, and nothing else is wanted or in the way.
    ///
    /// The replicas are not compared: after a patch they are the wanted ones, which is no news.
    pub(super) fn is_confirmed_by(&self, next: &Self) -> bool {
        let essence = |a: &Self| (a.wanted, a.min, a.max, a.because);
        !next.patched && essence(self) == essence(next)
    }
}

/// Why a reconciler did what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cause {
    /// A rule of the way between a decision and the replicas.
    Rule(Reason),
    /// Something that stands in the way.
    Obstacle(Obstacle),
}

impl Cause {
    /// Words for an operator.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Rule(reason) => reason.explain(),
            Self::Obstacle(obstacle) => obstacle.explain(),
        }
    }
}

/// What keeps a reconciler from changing replicas. The object's status has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Obstacle {
    /// The PodAutoscaler or its target breaks a rule.
    Invalid,
    /// The target does not exist, or cannot be looked at.
    TargetNotFound,
    /// Another target was scaled until now, and is given back first.
    TargetChanges,
    /// The public Service is somebody else's.
    ServiceNotOwned,
    /// The public Service is not in hand yet, so it may turn out to be somebody else's.
    ServicePending,
    /// There is no private Service yet, so pods cannot be found.
    NoPrivateService,
    /// The lease may end before the write is done.
    LeaseEnding,
    /// The API server did not accept the change, or could not be reached.
    NotAccepted,
    /// Somebody else changes the replicas back, again and again.
    Contested,
}

impl Obstacle {
    /// Words for an operator.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Invalid => "refused: a rule is broken, see its status",
            Self::TargetNotFound => "refused: the target cannot be found",
            Self::TargetChanges => "not yet: the former target is given back first",
            Self::ServiceNotOwned => "refused: the public Service is not its own",
            Self::ServicePending => "not yet: the public Service is not in hand",
            Self::NoPrivateService => "not yet: there is no private Service",
            Self::LeaseEnding => "not yet: the lease may end within two seconds",
            Self::NotAccepted => "the API server did not accept it; tried again",
            Self::Contested => "not yet: somebody else keeps changing the replicas",
        }
    }
}
