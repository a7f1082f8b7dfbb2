//! Action of a reconciler: the last step between a decision and the replicas.

use serde::{Deserialize, Serialize};

use crate::bounds::Bounds;
use crate::scale_to_zero::Reason;

/// Wanted scale of the target, and the action taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// Scale after bounds and the way to zero; `None` if unknown, so nothing is changed.
    pub wanted: Option<i32>,
    /// Replicas of the target before; `None` if they were not read.
    pub replicas: Option<i32>,
    /// True if the API server has accepted the wanted scale as a change.
    pub patched: bool,
    /// Minimum number of pods.
    pub min: i32,
    /// Maximum number of pods; `None` means no limit.
    pub max: Option<i32>,
    /// Reason for the action, or for its absence.
    pub because: Cause,
}

impl Action {
    /// Creates an action without a wanted scale, because of an obstacle.
    pub fn refused(obstacle: Obstacle) -> Self {
        let because = Cause::Obstacle(obstacle);
        Self { wanted: None, replicas: None, patched: false, min: 0, max: None, because }
    }

    /// Creates an action for a wanted scale that is not written yet.
    pub fn planned(wanted: Option<i32>, replicas: i32, bounds: Bounds, reason: Reason) -> Self {
        let (replicas, because) = (Some(replicas), Cause::Rule(reason));
        Self { wanted, replicas, patched: false, min: bounds.min, max: bounds.max, because }
    }

    /// Returns true if `next` only confirms this action: nothing was written, and wanted scale and cause are the same.
    ///
    /// The replicas are not compared: after a patch they equal the wanted scale, which is no change.
    pub(super) fn is_confirmed_by(&self, next: &Self) -> bool {
        let essence = |a: &Self| (a.wanted, a.min, a.max, a.because);
        !next.patched && essence(self) == essence(next)
    }
}

/// Reason for an action of the reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cause {
    /// Rule between a decision and the replicas.
    Rule(Reason),
    /// Obstacle to changing the replicas.
    Obstacle(Obstacle),
}

impl Cause {
    /// Returns a text for an operator.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Rule(reason) => reason.explain(),
            Self::Obstacle(obstacle) => obstacle.explain(),
        }
    }
}

/// Obstacle that keeps a reconciler from changing replicas. The status of the object has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Obstacle {
    /// The PodAutoscaler or its target violates a rule.
    Invalid,
    /// The target does not exist or cannot be read.
    TargetNotFound,
    /// Another target was scaled until now, and must be released first.
    TargetChanges,
    /// The public Service belongs to another owner.
    ServiceNotOwned,
    /// The public Service is not adopted yet, so it may turn out to belong to another owner.
    ServicePending,
    /// There is no private Service yet, so pods cannot be found.
    NoPrivateService,
    /// The lease may end before the write is complete.
    LeaseEnding,
    /// The API server did not accept the change, or could not be reached.
    NotAccepted,
    /// Another writer changes the replicas back again and again.
    Contested,
}

impl Obstacle {
    /// Returns a text for an operator.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Invalid => "refused: the spec violates a rule, see the status",
            Self::TargetNotFound => "refused: the target does not exist or cannot be read",
            Self::TargetChanges => "not yet: the previous target is being restored",
            Self::ServiceNotOwned => "refused: the public Service belongs to another owner",
            Self::ServicePending => "not yet: the public Service is not adopted",
            Self::NoPrivateService => "not yet: the private Service does not exist",
            Self::LeaseEnding => "not yet: the lease may end within two seconds",
            Self::NotAccepted => "the API server did not accept the change; the autoscaler tries again",
            Self::Contested => "not yet: another writer keeps changing the replicas",
        }
    }
}
