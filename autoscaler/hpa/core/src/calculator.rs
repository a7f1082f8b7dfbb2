//! Computes replicas from values of pods: Resource, ContainerResource and Pods metrics.
//!
//! # The rule
//!
//! Let `ratio` be usage divided by target, over the pods that count ([`super::groups`]):
//!
//! 1. If no pod is missing, and none is unready while `ratio > 1`: within tolerance the current replicas, otherwise
//!    `⌈ratio × ready pods⌉`.
//! 2. Otherwise the result is conservative. If `ratio < 1`, missing pods count with their full request, or with the
//!    target if that is higher (for a plain value: with the target). If `ratio > 1`, missing and unready pods count as
//!    0. The ratio of all pods that now have a value decides. The result is the current replicas if that ratio is
//!    within tolerance, or on the other side of 1 than `ratio`. Otherwise it is `⌈ratio × values⌉`, unless that
//!    contradicts the direction of the ratio.
//!
//! The reported value is always the first, uncorrected measurement. A count too large for 32 bits becomes the largest
//! one.
//!
//! # Edge cases kept from upstream
//!
//! Step 1 does not check the direction: four replicas of which one exists, at twice its target, become two. If `ratio`
//! is exactly 1, missing pods are left out. Values of unknown pods count in plain averages and in step 2.

use std::collections::BTreeMap;

use super::error::CalculationError;
use super::groups::{Groups, Judge};
use super::pod::{self, Pod};
use super::tolerance::Tolerances;
use super::usage::{self, Sample, Samples};

/// Inputs of a calculation.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// `spec.replicas` of the scale.
    pub current: i32,
    /// Tolerances of the ratio.
    pub tolerances: Tolerances,
    /// Pods that the selector matches.
    pub pods: &'a [&'a Pod],
}

/// Replicas for a target utilization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtilizationAnswer {
    /// Proposed replicas.
    pub replicas: i32,
    /// Used percentage of the requests.
    pub percent: i32,
    /// Average usage.
    pub average: i64,
}

/// Replicas for a target value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueAnswer {
    /// Proposed replicas.
    pub replicas: i32,
    /// Reported value: an average or a total.
    pub value: i64,
}

/// Returns the replicas that bring `resource` to `target_percent` of the requests.
///
/// # Errors
/// Returns an error if there are no pods or usable values, or a request is missing.
pub fn utilization(
    situation: &Situation<'_>,
    judge: &Judge<'_>,
    samples: Samples<'_>,
    (container, resource): (Option<&str>, &str),
    target_percent: i32,
) -> Result<UtilizationAnswer, CalculationError> {
    let (groups, mut samples) = prepare(situation, judge, samples)?;
    let requests = pod::requests(situation.pods, container, resource)?;
    let first = usage::utilization(&samples, &requests, target_percent)?;
    let answer = |replicas| UtilizationAnswer { replicas, percent: first.percent, average: first.average };
    let Some(doubts) = Doubts::of(&groups, first.ratio) else {
        return Ok(answer(situation.trusting(first.ratio, groups.ready)));
    };
    let busy = i64::from(target_percent.max(100));
    doubts.dispel(&groups, &mut samples, |pod| request_share(&requests, pod, busy));
    let second = usage::utilization(&samples, &requests, target_percent)?;
    Ok(answer(situation.cautious(first.ratio, second.ratio, samples.len())))
}

/// Returns the replicas that bring the average value of a pod to `target`.
///
/// # Errors
/// Returns an error if there are no pods or no usable values.
pub fn average(
    situation: &Situation<'_>,
    judge: &Judge<'_>,
    samples: Samples<'_>,
    target: i64,
) -> Result<ValueAnswer, CalculationError> {
    let (groups, mut samples) = prepare(situation, judge, samples)?;
    let value = usage::average(&samples);
    let ratio = value as f64 / target as f64;
    let answer = |replicas| ValueAnswer { replicas, value };
    let Some(doubts) = Doubts::of(&groups, ratio) else {
        return Ok(answer(situation.trusting(ratio, groups.ready)));
    };
    doubts.dispel(&groups, &mut samples, |_| target);
    let second = usage::average(&samples) as f64 / target as f64;
    Ok(answer(situation.cautious(ratio, second, samples.len())))
}

/// Groups the pods, and drops the values that do not count.
fn prepare<'a, 's>(
    situation: &Situation<'a>,
    judge: &Judge<'_>,
    mut samples: Samples<'s>,
) -> Result<(Groups<'a>, Samples<'s>), CalculationError>
where
    'a: 's,
{
    if situation.pods.is_empty() {
        return Err(CalculationError::NoPods);
    }
    let groups = judge.group(situation.pods, &samples);
    samples.retain(|pod, _| !groups.ignored.contains(*pod) && !groups.unready.contains(*pod));
    if samples.is_empty() {
        return Err(CalculationError::NoUsableMetrics);
    }
    Ok((groups, samples))
}

fn request_share(requests: &BTreeMap<&str, i64>, pod: &str, percent: i64) -> i64 {
    requests.get(pod).map_or(0, |request| request.wrapping_mul(percent) / 100)
}

/// Assumptions about pods without a usable value.
struct Doubts {
    /// Missing pods are busy (true), idle (false), or left out.
    missing: Option<bool>,
    /// Set if unready pods count as idle.
    unready: bool,
}

impl Doubts {
    fn of(groups: &Groups<'_>, ratio: f64) -> Option<Self> {
        let unready = !groups.unready.is_empty() && ratio > 1.0;
        if !unready && groups.missing.is_empty() {
            return None;
        }
        let missing = if ratio < 1.0 {
            Some(true)
        } else if ratio > 1.0 {
            Some(false)
        } else {
            None
        };
        Some(Self { missing, unready })
    }

    /// Adds the assumed values to the samples.
    fn dispel<'s, 'a: 's>(&self, groups: &Groups<'a>, samples: &mut Samples<'s>, busy: impl Fn(&str) -> i64) {
        let sample = |value| Sample { value, ..Sample::default() };
        if let Some(is_busy) = self.missing {
            samples.extend(groups.missing.iter().map(|pod| (*pod, sample(if is_busy { busy(pod) } else { 0 }))));
        }
        if self.unready {
            samples.extend(groups.unready.iter().map(|pod| (*pod, sample(0))));
        }
    }
}

impl Situation<'_> {
    /// Returns the replicas if no assumption was needed.
    fn trusting(&self, ratio: f64, ready: usize) -> i32 {
        if self.tolerances.admits(ratio) { self.current } else { times(ratio, ready) }
    }

    /// Returns the replicas if assumptions changed the ratio from `first` to `second`.
    fn cautious(&self, first: f64, second: f64, pods: usize) -> i32 {
        let flipped = (first < 1.0 && second > 1.0) || (first > 1.0 && second < 1.0);
        if flipped || self.tolerances.admits(second) {
            return self.current;
        }
        let replicas = times(second, pods);
        let backwards = (second < 1.0 && replicas > self.current) || (second > 1.0 && replicas < self.current);
        if backwards { self.current } else { replicas }
    }
}

/// Returns `⌈ratio × pods⌉`, saturating.
pub(super) fn times(ratio: f64, pods: usize) -> i32 {
    (ratio * pods as f64).ceil() as i32
}

#[cfg(test)]
mod tests;
