//! Usage of the pods, and its ratio to the target.
//!
//! All amounts are whole thousandths. Divisions drop the fraction, so a utilization of 110.9 % is 110 %; this whole
//! percentage is compared with target and tolerance. Sums wrap at 64 bits.

use std::collections::BTreeMap;
use std::time::Duration;

use common::time::Timestamp;

use super::pod::Resources;

/// Usage of a pod according to the resource metrics API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// Name of the pod.
    pub pod: String,
    /// Time of the measurement: the end of the window.
    pub timestamp: Timestamp,
    /// Length of the measured window.
    pub window: Duration,
    /// Usage of each container.
    pub containers: Vec<(String, Resources)>,
}

/// Value of a pod according to the custom metrics API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodValue {
    /// Name of the pod.
    pub pod: String,
    /// Time of the measurement.
    pub timestamp: Timestamp,
    /// Length of the measured window; it has no effect.
    pub window: Option<Duration>,
    /// Measured value.
    pub value: i64,
}

/// Value of one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Measured value.
    pub value: i64,
    /// Time of the measurement.
    pub timestamp: Timestamp,
    /// Length of the measured window.
    pub window: Duration,
}

/// Values of pods by name. If a name occurs twice, its last value counts.
pub type Samples<'a> = BTreeMap<&'a str, Sample>;

/// Returns the usage of `resource`, for one container or summed over all reported containers. A pod has no value if it
/// reports no container, or one of its containers lacks the resource.
pub fn resource_samples<'a>(usages: &'a [PodUsage], container: Option<&str>, resource: &str) -> Samples<'a> {
    let value = |usage: &PodUsage| match container {
        Some(name) => usage.containers.iter().find(|(n, _)| n == name).and_then(|(_, r)| r.get(resource)).copied(),
        None if usage.containers.is_empty() => None,
        None => usage.containers.iter().try_fold(0_i64, |sum, (_, r)| Some(sum.wrapping_add(*r.get(resource)?))),
    };
    let sample = |usage: &'a PodUsage| {
        let sample = Sample { value: value(usage)?, timestamp: usage.timestamp, window: usage.window };
        Some((usage.pod.as_str(), sample))
    };
    usages.iter().filter_map(sample).collect()
}

/// Returns the values of a custom metric.
pub fn pod_samples(values: &[PodValue]) -> Samples<'_> {
    const DEFAULT_WINDOW: Duration = Duration::from_secs(60);
    let window = |v: &PodValue| v.window.unwrap_or(DEFAULT_WINDOW);
    let sample = |v: &PodValue| Sample { value: v.value, timestamp: v.timestamp, window: window(v) };
    values.iter().map(|v| (v.pod.as_str(), sample(v))).collect()
}

/// Usage relative to the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Utilization {
    /// Percentage of the requests divided by the target percentage.
    pub ratio: f64,
    /// Percentage of the requests.
    pub percent: i32,
    /// Average usage.
    pub average: i64,
}

/// Returns the usage as a share of the requests, over the pods with both. Fails if there is no such pod, or the sum of
/// their requests is 0.
pub fn utilization(
    samples: &Samples<'_>,
    requests: &BTreeMap<&str, i64>,
    target_percent: i32,
) -> Result<Utilization, String> {
    let known = samples.iter().filter_map(|(pod, sample)| Some((sample.value, *requests.get(pod)?)));
    let (mut used, mut requested, mut pods) = (0_i64, 0_i64, 0_i64);
    for (value, request) in known {
        used = used.wrapping_add(value);
        requested = requested.wrapping_add(request);
        pods += 1;
    }
    if requested == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let percent = used.wrapping_mul(100).wrapping_div(requested) as i32; // The conversion wraps.
    Ok(Utilization { ratio: f64::from(percent) / f64::from(target_percent), percent, average: used.wrapping_div(pods) })
}

/// Returns the average of at least one value.
pub fn average(samples: &Samples<'_>) -> i64 {
    let sum = samples.values().fold(0_i64, |sum, sample| sum.wrapping_add(sample.value));
    sum.wrapping_div(i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_is_rounded_towards_zero() {
        let sample = |value| Sample { value, ..Sample::default() };
        assert_eq!(average(&[("a", sample(-5)), ("b", sample(0))].into()), -2, "not to -3");
    }

    #[test]
    fn a_utilization_needs_a_pod_with_usage_and_request() {
        let error = utilization(&Samples::new(), &BTreeMap::from([("a", 100)]), 50).expect_err("no usage");
        assert_eq!(error, "no metrics returned matched known pods");
    }
}
