//! How many of a revision's pods are asked for their stats, and what their answers say about all of them.
//!
//! # The rule
//!
//! A sample of `N·X / (N + X − 1)` pods, rounded up, estimates the mean of `N` with 95 % confidence, a standard
//! deviation of 10 and a margin of error of 5: `X = 1.96² · 10² / 5²`. It never exceeds 16. Up to three pods are all
//! asked.

/// `1.96² · 10² / 5²`: the sample for an endless population.
const SAMPLE_ENDLESS: f64 = 1.96 * 1.96 * 100.0 / 25.0;

/// Populations up to this size are asked as a whole.
const ALL_UP_TO: usize = 3;

/// How many of `population` pods are asked.
pub fn sample_size(population: usize) -> usize {
    if population <= ALL_UP_TO {
        return population;
    }
    let n = population as f64;
    (n * SAMPLE_ENDLESS / (n + SAMPLE_ENDLESS - 1.0)).ceil() as usize
}
