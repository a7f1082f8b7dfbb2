//! What the pods use, and its ratio to what they should.
//!
//! All amounts are in thousandths and whole. Divisions drop the fraction, so a utilization of 110.9 % is 110 %: it is
//! the whole percent that is held against target and tolerance. Sums wrap at 64 bits.

use std::collections::BTreeMap;
use std::time::Duration;

use common::time::Timestamp;

use super::error::CalculationError;
use super::pod::Resources;

/// What the resource metrics API says of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// The pod's name.
    pub pod: String,
    /// When it was measured: the end of the window.
    pub timestamp: Timestamp,
    /// Over what time.
    pub window: Duration,
    /// Each container and its usage.
    pub containers: Vec<(String, Resources)>,
}

/// What the custom metrics API says of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodValue {
    /// The pod's name.
    pub pod: String,
    /// When it was measured.
    pub timestamp: Timestamp,
    /// Over what time; nothing depends on it.
    pub window: Option<Duration>,
    /// The value.
    pub value: i64,
}

/// One pod's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The value.
    pub value: i64,
    /// When it was measured.
    pub timestamp: Timestamp,
    /// Over what time.
    pub window: Duration,
}

/// The values of pods, by name; of a name that is there twice the last counts.
pub type Samples<'a> = BTreeMap<&'a str, Sample>;

/// The usage of `resource`, of one container or summed over all that report. A pod without a container that reports,
/// or with one that lacks the resource, has no value.
pub fn of_resource<'a>(usages: &'a [PodUsage], container: Option<&str>, resource: &str) -> Samples<'a> {
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

/// The values of a custom metric.
pub fn of_pods(values: &[PodValue]) -> Samples<'_> {
    const UNSAID: Duration = Duration::from_secs(60);
    let sample = |v: &PodValue| Sample { value: v.value, timestamp: v.timestamp, window: v.window.unwrap_or(UNSAID) };
    values.iter().map(|v| (v.pod.as_str(), sample(v))).collect()
}

/// When the first was measured: the time that a proposal goes by.
pub fn measured_at(usages: &[PodUsage]) -> Option<Timestamp> {
    usages.first().map(|usage| usage.timestamp)
}

/// Usage against requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Utilization {
    /// Percent of the requests, over the percent aimed for.
    pub ratio: f64,
    /// Percent of the requests.
    pub percent: i32,
    /// Average usage.
    pub average: i64,
}

/// Usage as a share of the requests of the pods that have both.
///
/// # Errors
/// No such pod, or their requests are 0 in sum.
pub fn utilization(
    samples: &Samples<'_>,
    requests: &BTreeMap<&str, i64>,
    target_percent: i32,
) -> Result<Utilization, CalculationError> {
    let known = samples.iter().filter_map(|(pod, sample)| Some((sample.value, *requests.get(pod)?)));
    let (mut used, mut requested, mut pods) = (0_i64, 0_i64, 0_i64);
    for (value, request) in known {
        used = used.wrapping_add(value);
        requested = requested.wrapping_add(request);
        pods += 1;
    }
    if requested == 0 {
        return Err(CalculationError::NoKnownPods);
    }
    let percent = used.wrapping_mul(100).wrapping_div(requested) as i32; // Wraps.
    Ok(Utilization { ratio: f64::from(percent) / f64::from(target_percent), percent, average: used.wrapping_div(pods) })
}

/// Average of at least one value.
pub fn average(samples: &Samples<'_>) -> i64 {
    let sum = samples.values().fold(0_i64, |sum, sample| sum.wrapping_add(sample.value));
    sum.wrapping_div(i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples<'a>(values: &[(&'a str, i64)]) -> Samples<'a> {
        values.iter().map(|(pod, value)| (*pod, Sample { value: *value, ..Sample::default() })).collect()
    }

    #[test]
    fn a_utilization_counts_pods_with_usage_and_request() {
        let wanted = Utilization { ratio: 1.26, percent: 63, average: 63 };
        let requests = BTreeMap::from([("a", 100), ("b", 100), ("none", 500)]);
        assert_eq!(utilization(&samples(&[("a", 50), ("b", 76)]), &requests, 50), Ok(wanted));
        assert_eq!(utilization(&samples(&[("a", 50), ("b", 76), ("stale", 900)]), &requests, 50), Ok(wanted));
        assert_eq!(utilization(&samples(&[("stale", 1)]), &requests, 50), Err(CalculationError::NoKnownPods));
    }

    #[test]
    fn a_proposal_goes_by_the_time_of_the_first() {
        let at = |secs| PodUsage { timestamp: Timestamp::from_secs(secs), ..PodUsage::default() };
        assert_eq!(measured_at(&[at(7), at(9)]), Some(Timestamp::from_secs(7)));
        assert_eq!(measured_at(&[]), None);
    }

    #[test]
    fn an_average_counts_every_value() {
        assert_eq!(average(&samples(&[("a", 5000), ("b", 10000)])), 7500);
        assert_eq!(average(&samples(&[("a", -5), ("b", 0)])), -2, "towards zero");
    }

    #[test]
    fn a_pod_whose_containers_do_not_all_report_the_resource_has_no_value() {
        let usage = |pod: &str, containers: &[(&str, Option<i64>)]| PodUsage {
            pod: pod.into(),
            containers: containers
                .iter()
                .map(|(name, cpu)| (name.to_string(), cpu.map(|v| ("cpu".to_owned(), v)).into_iter().collect()))
                .collect(),
            ..PodUsage::default()
        };
        let usages = [
            usage("one", &[("test-1", Some(100))]),
            usage("two", &[("test-1", Some(300)), ("test-2", Some(400))]),
            usage("none", &[]),
            usage("partly", &[("test-1", Some(300)), ("test-2", None)]),
        ];
        let values = |container| -> Vec<_> {
            of_resource(&usages, container, "cpu").into_iter().map(|(pod, sample)| (pod, sample.value)).collect()
        };
        assert_eq!(values(None), [("one", 100), ("two", 700)]);
        assert_eq!(values(Some("test-2")), [("two", 400)]);
    }
}
