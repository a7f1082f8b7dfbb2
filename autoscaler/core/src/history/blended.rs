//! Combined result of load and metrics: which one asked for the most pods, and the effect.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::engine::Answer;
use hpa_core::decision::{Limit, Stabilization};

/// Combined result in few bytes. All entries of a metric share its name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blended {
    /// Name of the metric or load that asked for the most pods.
    #[serde(serialize_with = "text")]
    pub metric: Arc<str>,
    /// Number of pods that it asked for.
    pub asked: i32,
    /// Desired scale before bounds.
    pub desired: i32,
    /// Number of metrics that failed.
    pub failing: u16,
    /// True if fewer pods were asked for, and that was not trusted.
    pub held: bool,
    /// Effect of the stabilization windows.
    #[serde(serialize_with = "stabilization")]
    pub stabilization: Stabilization,
    /// Limit that was applied.
    #[serde(serialize_with = "limit")]
    pub limit: Limit,
}

impl Blended {
    /// Converts an answer. Returns `None` while the desired scale is unknown.
    pub(super) fn from_answer(answer: &Answer) -> Option<Self> {
        let Answer { desired, metric, asked, failing, held, stabilization, limit, measured: _ } = answer.clone();
        Some(Self { metric, asked, desired: desired?, failing, held, stabilization, limit })
    }

    /// Returns true if `next` has the same effect, whatever number of pods was asked for.
    pub(super) fn is_confirmed_by(&self, next: &Self) -> bool {
        let essence = |b: &Self| (b.desired, b.failing > 0, b.held, b.stabilization, b.limit);
        essence(self) == essence(next) && self.metric == next.metric
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn stabilization<S: Serializer>(what: &Stabilization, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(what.texts().0)
}

fn limit<S: Serializer>(what: &Limit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(what.texts().0)
}
