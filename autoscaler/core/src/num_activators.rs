//! Computes the number of activators in a revision's path: enough for the capacity of its pods plus the burst.
//!
//! `max(2, ceil((ready · total_value + max(TBC, 0)) / activator_capacity))`. With a target burst capacity of 0, which
//! needs activators only at zero pods, the number is always 2.

use common::scaling::BurstCapacity;

/// Minimum number of activators in a path.
const ACTIVATORS_MIN: i32 = 2;

/// Returns the number of activators for `ready` pods with a capacity of `total_value` each.
pub fn num_activators(ready: u32, total_value: f64, burst: BurstCapacity, activator_capacity: f64) -> i32 {
    let burst = match burst {
        BurstCapacity::AtZeroOnly => return ACTIVATORS_MIN,
        BurstCapacity::Always => 0.0,
        BurstCapacity::Limited(burst) => burst,
    };
    // Saturates.
    (((f64::from(ready) * total_value + burst) / activator_capacity).ceil() as i32).max(ACTIVATORS_MIN)
}
