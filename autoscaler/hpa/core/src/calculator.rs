//! Replicas from values of pods: Resource, ContainerResource and Pods metrics.
//!
//! # The rule
//!
//! With `ratio` the usage over the target, of the pods that count ([`super::groups`]):
//!
//! 1. No pod is missing, and none unready while `ratio > 1`: within tolerance the current replicas, otherwise
//!    `⌈ratio × ready pods⌉`.
//! 2. Otherwise be cautious. Missing pods use their full request, or the target if that is higher (a plain value: the
//!    target), when `ratio < 1`, and nothing when `ratio > 1`; unready pods use nothing when `ratio > 1`. The ratio of
//!    all that now have a value decides: the current replicas if it is within tolerance or on the other side of 1 than
//!    `ratio`, otherwise `⌈ratio × values⌉`, unless that would go the other way than the ratio says.
//!
//! What is reported is always the first, uncorrected measurement. A count too large for 32 bits is the largest one.
//!
//! # Odd cases, kept
//!
//! Step 1 does not check its direction: four replicas of which one exists, at twice its target, become two. At exactly
//! 1 missing pods are left out. Values of pods that nobody knows count in plain averages and in step 2.

use std::collections::BTreeMap;

use super::error::CalculationError;
use super::groups::{Groups, Judge};
use super::pod::{self, Pod};
use super::tolerance::Tolerances;
use super::usage::{self, Sample, Samples};

/// What a calculation starts from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// `spec.replicas` of the scale.
    pub current: i32,
    /// How far off target nothing happens.
    pub tolerances: Tolerances,
    /// The pods that the selector finds.
    pub pods: &'a [&'a Pod],
}

/// Replicas for a utilization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtilizationAnswer {
    /// Replicas wanted.
    pub replicas: i32,
    /// Percent of the requests in use.
    pub percent: i32,
    /// Average usage.
    pub average: i64,
}

/// Replicas for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueAnswer {
    /// Replicas wanted.
    pub replicas: i32,
    /// What is reported: an average or a total.
    pub value: i64,
}

/// Replicas that bring `resource` to `target_percent` of the requests.
///
/// # Errors
/// No pods, no usable values, or a missing request.
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

/// Replicas that bring the average value of a pod to `target`.
///
/// # Errors
/// No pods, or no usable values.
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

/// Groups the pods, and drops values that do not count.
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

/// What must be assumed before a ratio can be trusted.
struct Doubts {
    /// Missing pods are busy (true), idle (false), or left out.
    missing: Option<bool>,
    /// Unready pods are idle.
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

    /// Adds what is assumed to the samples.
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
    /// Nothing had to be assumed.
    fn trusting(&self, ratio: f64, ready: usize) -> i32 {
        if self.tolerances.admits(ratio) { self.current } else { times(ratio, ready) }
    }

    /// `second` is what `first` became by assumptions.
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

/// `⌈ratio × pods⌉`, saturating.
pub(super) fn times(ratio: f64, pods: usize) -> i32 {
    (ratio * pods as f64).ceil() as i32
}

#[cfg(test)]
mod tests;
