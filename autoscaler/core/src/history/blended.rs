//! What became of load and metrics together: which asked for the most, and what was made of it.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::engine::Answer;
use hpa_core::decision::{Limit, Stabilization};

/// An answer in few bytes; the name is shared by all entries of its metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blended {
    /// What asked for the most: a metric, or the load by its name.
    #[serde(serialize_with = "text")]
    pub metric: Arc<str>,
    /// How many pods it asked for.
    pub asked: i32,
    /// What came of it, before bounds.
    pub desired: i32,
    /// Metrics that failed.
    pub failing: u16,
    /// Fewer were asked for, and that was not believed.
    pub held: bool,
    /// What stabilization did.
    #[serde(serialize_with = "stabilization")]
    pub stabilization: Stabilization,
    /// What limited it.
    #[serde(serialize_with = "limit")]
    pub limit: Limit,
}

impl Blended {
    /// None as long as nothing is known.
    pub(super) fn of(answer: &Answer) -> Option<Self> {
        let Answer { desired, metric, asked, failing, held, stabilization, limit, measured: _ } = answer.clone();
        Some(Self { metric, asked, desired: desired?, failing, held, stabilization, limit })
    }

    /// Whether `next` says the same again, however much was asked for.
    pub(super) fn is_confirmed_by(&self, next: &Self) -> bool {
        let essence = |b: &Self| (b.desired, b.failing > 0, b.held, b.stabilization, b.limit);
        essence(self) == essence(next) && self.metric == next.metric
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn stabilization<S: Serializer>(what: &Stabilization, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(what.reason())
}

fn limit<S: Serializer>(what: &Limit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(what.reason())
}
