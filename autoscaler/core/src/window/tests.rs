//! Tests of windows against a simple model, and of their limits. Knative's results are recorded in `tests/conformance`
//! (kind `window`).

use proptest::prelude::*;

use super::*;

const EPOCH: i64 = 1_700_000_040;

fn at(secs: f64) -> Timestamp {
    Timestamp::from_nanos(EPOCH * 1_000_000_000 + (secs * 1e9) as i64)
}

fn linear(secs: u64) -> Window<1> {
    Window::new(Duration::from_secs(secs), Aggregation::Linear)
}

impl Window<1> {
    fn write(&mut self, secs: f64, value: f64) {
        self.record(at(secs), [value]);
    }

    fn read(&self, secs: f64) -> f64 {
        self.average(at(secs))[0]
    }
}

#[test]
fn exactly_a_window_old_is_silent_and_not_yet_empty() {
    let mut window = linear(60);
    assert!(window.is_empty(at(0.0)) && window.is_silent(at(0.0)), "never written");
    (0..60).for_each(|i| window.write(f64::from(i), 100.0));
    // (seconds after the last) -> (average, silent, empty)
    for (after, expected) in [
        (30.0, (100.0, false, false)),
        (59.9, (100.0, false, false)),
        (60.0, (0.0, true, false)),
        (60.9, (0.0, true, false)),
        (61.0, (0.0, true, true)),
    ] {
        let now = 59.0 + after;
        assert_eq!(
            (window.read(now), window.is_silent(at(now)), window.is_empty(at(now))),
            expected,
            "{after} s later"
        );
    }
    assert!(!window.is_empty(at(0.0)), "a reader behind the writer");
}

#[test]
fn averages_are_rounded_to_six_digits() {
    for (value, expected) in [(3.6e-17, 0.0), (-3.6e-17, 0.0), (1.234_567_8, 1.234_568), (12_345.0, 12_345.0)] {
        let mut window = linear(6);
        window.write(0.0, value);
        assert_eq!(window.read(0.0), expected, "{value}");
    }
}

#[test]
fn the_newest_slots_weight_is_exact_where_it_matters() {
    let weights = [1, 2, 4, 42, 3600].map(|slots| alpha(Aggregation::WeightedExponential, slots));
    assert_eq!(weights, [0.9999, 0.99, 0.9, 0.2, 0.2].map(Some), "to the last bit");
}

#[test]
fn a_sleeping_window_holds_no_ring() {
    let mut window = linear(6);
    assert_eq!(window.ring.capacity(), 0, "before the first value");
    window.write(0.0, 10.0);
    window.release(at(11.9));
    assert_eq!(window.ring.len(), 6, "a late value may still use it");
    window.release(at(12.0));
    assert_eq!(window.ring.capacity(), 0);
    window.write(12.0, 6.0);
    assert_eq!(window.read(12.0), 6.0);
}

#[test]
fn extreme_lengths_and_times_are_bounded() {
    assert_eq!(Window::<1>::new(Duration::from_millis(2500), Aggregation::Linear).slots, 3, "a slot begun counts");
    assert_eq!(Window::<1>::new(Duration::ZERO, Aggregation::Linear).slots, 1);
    assert_eq!(Window::<1>::new(Duration::MAX, Aggregation::Linear).slots, 86_400, "a day");
    let mut window = linear(6);
    for extreme in [i64::MIN, i64::MAX, 0] {
        window.record(Timestamp::from_nanos(extreme), [1.0]);
        window.average(Timestamp::from_nanos(i64::MIN));
        window.average(Timestamp::from_nanos(i64::MAX));
    }
}

/// Computes the expected average from all values ever recorded, in time order.
fn plain_average(values: &[(i64, f64)], window: i64, now: i64) -> f64 {
    let Some((last, _)) = values.last() else { return 0.0 };
    // A silence of one window clears all data, so the data begins after the last such gap.
    let start = values.windows(2).rposition(|pair| pair[1].0 - pair[0].0 >= window).map_or(0, |i| i + 1);
    let oldest = now.max(*last) - window + 1;
    let live = values[start..].iter().filter(|(second, _)| *second >= oldest);
    let span = (last - values[start].0 + 1).min(last - oldest + 1);
    if span <= 0 { 0.0 } else { live.map(|(_, value)| value).sum::<f64>() / span as f64 }
}

proptest! {
    /// Goal: the ring agrees with a list of all values, whatever the gaps, and releasing memory changes no result.
    #[test]
    fn the_ring_is_a_plain_average(
        length in 1_i64..20,
        gaps in prop::collection::vec((0_i64..25, 0_u32..1000), 1..60),
        after in 0_i64..50,
    ) {
        let (mut window, mut released) = (linear(length as u64), linear(length as u64));
        let (mut second, mut values) = (0, Vec::new());
        for (gap, value) in gaps {
            second += gap;
            let value = f64::from(value);
            released.release(at(second as f64));
            window.write(second as f64, value);
            released.write(second as f64, value);
            values.push((second, value));
        }
        let now = second + after;
        released.release(at(now as f64));
        let got = window.read(now as f64);
        let wanted = plain_average(&values, length, now);
        prop_assert!((got - wanted).abs() < 1e-5, "wanted {wanted}, got {got}");
        prop_assert_eq!(got, released.read(now as f64));
    }
}
