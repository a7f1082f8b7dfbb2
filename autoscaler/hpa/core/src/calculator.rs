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
//! The reported value is always the measured one, without assumptions. A result above 32 bits becomes the largest
//! 32-bit integer.
//!
//! # Edge cases kept from upstream
//!
//! Step 1 does not check the direction: if one of four replicas exists, at twice its target, the result is two. If
//! `ratio` is exactly 1, missing pods are left out. Values of pods that the selector does not match count in plain
//! averages and in step 2.

use super::groups::{Groups, group};
use super::measure::MetricInputs;
use super::pod;
use super::usage::{self, Sample, Samples, Utilization};

/// Error text if there are no pods.
pub(super) const NO_PODS: &str = "no pods returned by selector while calculating replica count";

/// Replicas for a target value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueAnswer {
    /// Proposed replicas.
    pub replicas: i32,
    /// Reported value: an average or a total.
    pub value: i64,
}

/// Returns the replicas that bring `resource` to `target_percent` of the requests, and the utilization. Fails if there
/// are no pods or usable values, or a request is missing.
pub fn utilization(
    inputs: &MetricInputs<'_>,
    samples: Samples<'_>,
    (container, resource): (Option<&str>, &str),
    target_percent: i32,
) -> Result<(i32, Utilization), String> {
    let (groups, samples) = prepare(inputs, resource == "cpu", samples)?;
    let requests = pod::requests(inputs.pods, container, resource)?;
    let first = usage::utilization(&samples, &requests, target_percent)?;
    let busy = i64::from(target_percent.max(100));
    let busy = |pod: &str| requests.get(pod).map_or(0, |request| request.wrapping_mul(busy) / 100);
    let ratio =
        |samples: &Samples<'_>| usage::utilization(samples, &requests, target_percent).map(|second| second.ratio);
    Ok((inputs.replicas(&groups, samples, busy, ratio)?, first))
}

/// Returns the replicas that bring the average value of a pod to `target`. `cpu` is set if the resource is cpu. Fails
/// if there are no pods or no usable values.
pub fn average(inputs: &MetricInputs<'_>, cpu: bool, samples: Samples<'_>, target: i64) -> Result<ValueAnswer, String> {
    let (groups, samples) = prepare(inputs, cpu, samples)?;
    let value = usage::average(&samples);
    let ratio = |samples: &Samples<'_>| Ok(usage::average(samples) as f64 / target as f64);
    let replicas = inputs.replicas(&groups, samples, |_| target, ratio)?;
    Ok(ValueAnswer { replicas, value })
}

/// Groups the pods, and drops the values that do not count.
fn prepare<'a, 's>(
    inputs: &MetricInputs<'a>,
    cpu: bool,
    mut samples: Samples<'s>,
) -> Result<(Groups<'a>, Samples<'s>), String>
where
    'a: 's,
{
    if inputs.pods.is_empty() {
        return Err(NO_PODS.to_owned());
    }
    let groups = group(inputs, cpu, &samples);
    samples.retain(|pod, _| !groups.ignored.contains(*pod) && !groups.unready.contains(*pod));
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    Ok((groups, samples))
}

impl MetricInputs<'_> {
    /// Returns the replicas for samples whose ratio `ratio` computes. A missing pod that counts as busy gets the value
    /// that `busy` returns.
    fn replicas<'s, 'a: 's>(
        &self,
        groups: &Groups<'a>,
        mut samples: Samples<'s>,
        busy: impl Fn(&str) -> i64,
        ratio: impl Fn(&Samples<'_>) -> Result<f64, String>,
    ) -> Result<i32, String> {
        let first = ratio(&samples)?;
        let unready_are_idle = !groups.unready.is_empty() && first > 1.0;
        if groups.missing.is_empty() && !unready_are_idle {
            let holds = self.tolerances.admits(first);
            return Ok(if holds { self.spec_replicas } else { times(first, groups.ready) });
        }
        let assumed = |value| Sample { value, ..Sample::default() };
        if first < 1.0 {
            samples.extend(groups.missing.iter().map(|pod| (*pod, assumed(busy(pod)))));
        } else if first > 1.0 {
            samples.extend(groups.missing.iter().chain(&groups.unready).map(|pod| (*pod, assumed(0))));
        }
        Ok(self.conservative(first, ratio(&samples)?, samples.len()))
    }

    /// Returns the replicas if assumptions about pods changed the ratio from `first` to `second`.
    fn conservative(&self, first: f64, second: f64, pods: usize) -> i32 {
        let flipped = (first < 1.0 && second > 1.0) || (first > 1.0 && second < 1.0);
        if flipped || self.tolerances.admits(second) {
            return self.spec_replicas;
        }
        let replicas = times(second, pods);
        let backwards =
            (second < 1.0 && replicas > self.spec_replicas) || (second > 1.0 && replicas < self.spec_replicas);
        if backwards { self.spec_replicas } else { replicas }
    }
}

/// Returns `⌈ratio × pods⌉`, saturating.
pub(super) fn times(ratio: f64, pods: usize) -> i32 {
    (ratio * pods as f64).ceil() as i32
}

#[cfg(test)]
mod tests;
