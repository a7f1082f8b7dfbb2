//! Computes replicas from one value for all pods: Object and External metrics.
//!
//! With target type Value, `ratio = value / target`: within tolerance the current replicas, otherwise `⌈ratio × ready
//! pods⌉`. At zero replicas pods and tolerance are ignored: `⌈ratio⌉`.
//!
//! With target type AverageValue, `ratio = value / (target × replicas)` with `status.replicas`. Within tolerance the
//! result is these replicas, not the desired ones; during a rollout this alone can change the scale. Otherwise it is
//! `⌈value / target⌉`. The reported value is `⌈value / replicas⌉`.
//!
//! # Edge cases kept from upstream
//!
//! - Terminating pods count as ready if they run and are ready. If there are pods, but none is ready, the result is 0
//!   replicas.
//! - With Value a sum of external values is capped at the largest integer. With AverageValue a negative partial sum
//!   also counts as the largest integer, even if only one value was negative. The result is then the largest number of
//!   replicas.
//! - An external total that rounds to 2^63 is reported as the largest integer, without division by the replicas.
//! - Replicas are negative if the value is negative. A result above the largest integer becomes that integer.
//! - If the number of replicas is 0, the value that upstream reports depends on the processor. Here it is the largest
//!   or smallest integer, or 0 for 0 / 0.

use super::calculator::{NO_PODS, ValueAnswer, times};
use super::measure::MetricInputs;

/// Floating-point form of the largest integer, which is one more than that integer.
const LARGEST: f64 = i64::MAX as f64;

/// Returns the replicas that bring `value` to `target`. Fails if there are no pods, and the result depends on them.
pub fn value(inputs: &MetricInputs<'_>, value: i64, target: i64) -> Result<ValueAnswer, String> {
    let ratio = value as f64 / target as f64;
    let replicas = if inputs.spec_replicas == 0 {
        times(ratio, 1)
    } else if inputs.tolerances.admits(ratio) {
        inputs.spec_replicas
    } else if inputs.pods.is_empty() {
        return Err(format!("unable to calculate ready pods: {NO_PODS}"));
    } else {
        times(ratio, inputs.pods.iter().filter(|pod| pod.is_ready()).count())
    };
    Ok(ValueAnswer { replicas, value })
}

/// Returns the replicas that bring each replica's share of `value` to `target`.
pub fn average_value(inputs: &MetricInputs<'_>, value: i64, target: i64) -> ValueAnswer {
    let (total, target, replicas) = (value as f64, target as f64, inputs.status_replicas);
    let ratio = total / (target * f64::from(replicas));
    let wanted = if inputs.tolerances.admits(ratio) { replicas } else { times(total / target, 1) };
    ValueAnswer { replicas: wanted, value: (total / f64::from(replicas)).ceil() as i64 }
}

/// Returns the sum of external values for a target of type Value.
pub fn sum(values: &[i64]) -> i64 {
    let add = |sum: i64, value: &i64| {
        let fits = *value <= 0 || sum <= i64::MAX - value;
        fits.then_some(sum.wrapping_add(*value))
    };
    values.iter().try_fold(0, add).unwrap_or(i64::MAX)
}

/// Returns the [`average_value`] of external values.
pub fn external_average_value(inputs: &MetricInputs<'_>, values: &[i64], target: i64) -> ValueAnswer {
    let sum = sum_for_average(values);
    let answer = average_value(inputs, sum, target);
    if sum as f64 >= LARGEST { ValueAnswer { value: i64::MAX, ..answer } } else { answer }
}

/// Returns the sum of external values for a target of type AverageValue.
fn sum_for_average(values: &[i64]) -> i64 {
    let add = |sum: i64, value: &i64| Some(sum.wrapping_add(*value)).filter(|sum| *sum >= 0);
    values.iter().try_fold(0, add).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
