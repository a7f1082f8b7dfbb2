//! Replicas from one value for all: Object and External metrics.
//!
//! With target type Value, `ratio = value / target`: within tolerance the current replicas, otherwise
//! `⌈ratio × ready pods⌉`. At zero replicas neither pods nor tolerance are looked at: `⌈ratio⌉`.
//!
//! With target type AverageValue, `ratio = value / (target × replicas)` with `status.replicas`: within tolerance those
//! replicas (not the wanted ones: during a rollout this alone can change the scale), otherwise `⌈value / target⌉`.
//! Reported is `⌈value / replicas⌉`.
//!
//! # Odd cases, kept
//!
//! - Ready pods here are those that run and are ready, on their way out or not. None ready of several: 0 replicas.
//! - A sum of external values stops at the largest integer with Value; with AverageValue a partial sum below zero also
//!   counts as the largest integer, even if only a value was below zero: then the answer is the largest number of
//!   replicas.
//! - An external total as large as that is reported whole, not by replica.
//! - Replicas may be negative if the value is. Too large ones are the largest integer.
//! - With no replicas to divide by, what is reported depends upstream on the processor. Here it is the nearest integer
//!   to an infinity, or 0 for 0 / 0.

use super::calculator::{Situation, ValueAnswer, times};
use super::error::CalculationError;
use super::tolerance::Tolerances;

/// The largest integer, as a floating-point number: one more.
const LARGEST: f64 = i64::MAX as f64;

/// Replicas that bring `value` to `target`.
///
/// # Errors
/// There are no pods, and the answer depends on them.
pub fn value(situation: &Situation<'_>, value: i64, target: i64) -> Result<ValueAnswer, CalculationError> {
    let ratio = value as f64 / target as f64;
    let replicas = if situation.current == 0 {
        times(ratio, 1)
    } else if situation.tolerances.admits(ratio) {
        situation.current
    } else if situation.pods.is_empty() {
        return Err(CalculationError::NoPodsToCount);
    } else {
        times(ratio, situation.pods.iter().filter(|pod| pod.is_ready()).count())
    };
    Ok(ValueAnswer { replicas, value })
}

/// Replicas that bring each one's share of `value` to `target`; `replicas` is `status.replicas` of the scale.
pub fn average_value(tolerances: Tolerances, replicas: i32, value: i64, target: i64) -> ValueAnswer {
    let (total, target) = (value as f64, target as f64);
    let ratio = total / (target * f64::from(replicas));
    let wanted = if tolerances.admits(ratio) { replicas } else { times(total / target, 1) };
    ValueAnswer { replicas: wanted, value: (total / f64::from(replicas)).ceil() as i64 }
}

/// The sum of external values, for a target of type Value.
pub fn sum(values: &[i64]) -> i64 {
    let mut sum = 0_i64;
    for value in values {
        if *value > 0 && sum > i64::MAX - value {
            return i64::MAX;
        }
        sum = sum.wrapping_add(*value);
    }
    sum
}

/// [`average_value`] of external values.
pub fn average_of(tolerances: Tolerances, replicas: i32, values: &[i64], target: i64) -> ValueAnswer {
    let sum = sum_for_average(values);
    let answer = average_value(tolerances, replicas, sum, target);
    if sum as f64 >= LARGEST { ValueAnswer { value: i64::MAX, ..answer } } else { answer }
}

/// The sum of external values, for a target of type AverageValue.
fn sum_for_average(values: &[i64]) -> i64 {
    let mut sum = 0_i64;
    for value in values {
        sum = sum.wrapping_add(*value);
        if sum < 0 {
            return i64::MAX;
        }
    }
    sum
}

#[cfg(test)]
mod tests;
