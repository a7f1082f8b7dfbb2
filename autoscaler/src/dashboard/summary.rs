//! What is shown of one workload in a list, as JSON.

use super::ring::{Rates, SAMPLES_MAX, Sample};
use super::why::ASLEEP;
use common_api::zeroscaler::{NextChange, State};
use serde::Serialize;
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// One workload in a list. Times are RFC 3339.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub(super) namespace: String,
    pub(super) name: String,
    /// `Deployment/hello`.
    pub(super) target: String,
    pub(super) state: State,
    /// Since when it is in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    /// Whether it is kept as it is.
    pub(super) paused: bool,
    pub(super) pods: Pods,
    pub(super) min: Option<i32>,
    /// None: as many as the load asks for.
    pub(super) max: Option<i32>,
    pub(super) requests_per_second: f64,
    pub(super) concurrency: f64,
    pub(super) held: u32,
    pub(super) why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ready: Option<Ready>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_wake: Option<Value>,
    /// The replica that decides about it; empty: none at the moment.
    pub(super) owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) saved: Option<SavedView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_change: Option<NextChange>,
    /// The last minutes, of one that had load; in full lists alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recent: Option<Recent>,
}

/// How many pods.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Pods {
    pub(super) ready: i32,
    pub(super) actual: i32,
    pub(super) desired: Option<i32>,
}

/// The condition Ready.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ready {
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
}

/// What its sleep has saved.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedView {
    pub(super) pod_seconds: f64,
    /// Pods that are saved at this moment.
    pub(super) pods: u16,
    /// Since when it is counted.
    pub(super) since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) money: Option<Money>,
}

/// What that has cost less.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Money {
    pub(super) amount: f64,
    /// What one pod costs in an hour: what is saved from now on follows from it.
    pub(super) per_hour: f64,
    pub(super) currency: String,
}

/// The last minutes, one number for every two samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Recent {
    /// Mean of each.
    pub(super) requests_per_second: Vec<f32>,
    /// Most of each.
    pub(super) held: Vec<u32>,
}

/// Samples that one number of [`Recent`] stands for.
const FOLDED: usize = 2;

impl Recent {
    /// Of samples; none: there was no load.
    pub(super) fn of<'a>(samples: impl ExactSizeIterator<Item = &'a Sample>) -> Option<Self> {
        let blank = std::iter::repeat_n(Rates::default(), SAMPLES_MAX.saturating_sub(samples.len()));
        let all: Vec<Rates> = blank.chain(samples.map(|sample| sample.rates)).collect();
        if all.iter().all(|rates| rates.requests == 0.0 && rates.held == 0) {
            return None;
        }
        let folded = all.chunks(FOLDED);
        let mean = |some: &[Rates]| some.iter().map(|rates| rates.requests).sum::<f32>() / some.len() as f32;
        Some(Self {
            requests_per_second: folded.clone().map(|some| (mean(some) * 100.0).round() / 100.0).collect(),
            held: folded.map(|some| some.iter().map(|rates| rates.held).max().unwrap_or_default()).collect(),
        })
    }
}

impl Summary {
    /// Takes over the load, rounded to what can be read.
    pub(super) fn set_rates(&mut self, rates: Rates) {
        let round = |value: f32| (f64::from(value) * 100.0).round() / 100.0;
        (self.requests_per_second, self.concurrency) = (round(rates.requests), round(rates.concurrency));
        self.held = rates.held;
    }

    /// A number that changes when there is something new to show. What changes by time alone is not new: how long it has
    /// been asleep, and what that has saved, follow from the rest.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut shown = Self { recent: None, ..self.clone() };
        if self.why.starts_with(ASLEEP) {
            shown.why.clear();
        }
        let pods = shown.saved.take().map(|saved| saved.pods);
        let mut hasher = DefaultHasher::new();
        // What cannot be written as JSON is not sent either.
        (serde_json::to_string(&shown).unwrap_or_default(), pods).hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
pub(super) mod tests;
