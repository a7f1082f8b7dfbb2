//! Row of one workload in a list, as JSON.

use super::ring::{Rates, SAMPLES_MAX, Sample};
use super::why::ASLEEP;
use common_api::zeroscaler::{NextChange, SleepState};
use serde::Serialize;
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Row of one workload. Times are RFC 3339.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Kind and name, such as `Deployment/hello`.
    pub(super) target: String,
    pub(super) state: SleepState,
    /// Time at which this state began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    /// Set if scaling and routing are suspended.
    pub(super) paused: bool,
    /// `ready`, `actual` and `desired` number of pods.
    pub(super) pods: Value,
    pub(super) min: Option<i32>,
    /// None: no upper bound.
    pub(super) max: Option<i32>,
    pub(super) requests_per_second: f64,
    pub(super) concurrency: f64,
    pub(super) held: u32,
    pub(super) why: String,
    /// `status`, `reason` and `message` of the condition Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ready: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_wake: Option<Value>,
    /// Replica that owns it; empty: none at the moment.
    pub(super) owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) saved: Option<Saved>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_change: Option<NextChange>,
    /// The last minutes, if there was load; only in complete lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recent: Option<Recent>,
}

/// Savings by its sleep.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Saved {
    pub(super) pod_seconds: f64,
    /// Pods saved at this moment.
    pub(super) pods: u16,
    /// Start of counting.
    pub(super) since: String,
    /// Saved `amount`, and price of one pod `perHour`, from which a client computes further savings, with `currency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) money: Option<Value>,
}

/// The last minutes, one number for every two samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Recent {
    /// Mean of each pair.
    pub(super) requests_per_second: Vec<f32>,
    /// Maximum of each pair.
    pub(super) held: Vec<u32>,
}

/// Number of samples per number of [`Recent`].
const FOLDED: usize = 2;

impl Recent {
    /// Folds samples; none: there was no load.
    pub(super) fn from_samples<'a>(samples: impl ExactSizeIterator<Item = &'a Sample>) -> Option<Self> {
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
    /// Sets the load, rounded for display.
    pub(super) fn set_rates(&mut self, rates: Rates) {
        let round = |value: f32| (f64::from(value) * 100.0).round() / 100.0;
        (self.requests_per_second, self.concurrency) = (round(rates.requests), round(rates.concurrency));
        self.held = rates.held;
    }

    /// Returns a hash that changes if there is something new to show. Changes by time alone do not count: the client
    /// derives the duration of sleep, and its savings, from the rest.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut shown = Self { recent: None, ..self.clone() };
        if self.why.starts_with(ASLEEP) {
            shown.why.clear();
        }
        let pods = shown.saved.take().map(|saved| saved.pods);
        let mut hasher = DefaultHasher::new();
        // A summary that cannot be serialized is not sent either.
        (serde_json::to_string(&shown).unwrap_or_default(), pods).hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
pub(super) mod tests;
