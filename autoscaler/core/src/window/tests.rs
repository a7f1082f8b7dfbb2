//! Tests of linear and weighted windows against Knative's results and a simple model.

use proptest::prelude::*;

use super::*;

/// Start of a minute, so a multiple of every granularity used here.
const EPOCH: i64 = 1_700_000_040;

fn at(secs: f64) -> Timestamp {
    Timestamp::from_nanos(EPOCH * 1_000_000_000 + (secs * 1e9) as i64)
}

fn linear(secs: u64) -> Window<1> {
    Window::new(Duration::from_secs(secs), Aggregation::Linear)
}

fn weighted(secs: u64) -> Window<1> {
    Window::new(Duration::from_secs(secs), Aggregation::WeightedExponential)
}

impl Window<1> {
    fn write(&mut self, secs: f64, value: f64) {
        self.record(at(secs), [value]);
    }

    fn read(&self, secs: f64) -> f64 {
        self.average(at(secs))[0]
    }
}

fn assert_close(got: f64, wanted: f64, what: &str) {
    assert!((got - wanted).abs() <= wanted.abs() * 1e-6 + 1e-9, "{what}: wanted {wanted}, got {got}");
}

#[test]
fn a_young_window_averages_over_its_age() {
    let mut window = linear(5);
    assert_eq!(window.read(0.0), 0.0, "nothing was written");
    window.write(0.0, 1.0);
    assert_eq!(window.read(0.0), 1.0, "not a fifth of it");
    for (secs, value) in [(1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 5.0)] {
        window.write(secs, value);
    }
    assert_eq!(window.read(4.0), 3.0);
    assert_eq!(window.read(3.6), 3.0, "a reader behind the writer");
    assert_eq!(window.read(6.0), 4.0, "(15 − 1 − 2) / 3");
    assert_eq!(window.read(9.0), 0.0);
    assert_eq!(window.read(10.0), 0.0);
    window.write(6.0, 91.0);
    assert_eq!(window.read(6.0), 20.6, "(15 − 1 − 2 + 91) / 5");
}

#[test]
fn late_values_count_until_they_are_a_window_old() {
    let mut window = linear(5);
    window.write(-60.0, 7.0);
    window.write(0.0, 1984.0);
    assert_eq!(window.read(0.0), 1984.0, "a window of silence clears all");
    window.write(-3.0, 4.0);
    assert_eq!(window.read(0.0), 497.0, "(4 + 1984) / 4");
    window.write(1.0, 5.0);
    assert_eq!(window.read(1.0), 398.6);
    window.write(-2.0, 10.0);
    assert_eq!(window.read(1.0), 400.6);
    window.write(-5.0, 10.0);
    window.write(-4.0, 10.0);
    assert_eq!(window.read(1.0), 400.6, "as old as the window, or older");
    window.write(6.0, 10.0);
    assert_eq!(window.read(6.0), 10.0, "exactly a window after the newest");
}

#[test]
fn values_may_be_written_backwards() {
    let mut window = linear(5);
    (0..=8).rev().for_each(|secs| window.write(f64::from(secs), 5.0));
    assert_eq!(window.read(5.0), 5.0);
}

#[test]
fn a_gap_counts_as_zero() {
    let mut window = linear(5);
    (0..5).for_each(|i| window.write(f64::from(i), f64::from(i + 1)));
    window.write(8.0, 2.0);
    assert_eq!(window.total, [7.0], "5 from second 4, 2 from second 8");
    assert_eq!(window.read(8.0), 1.4);
}

/// Goal: the slots of a gap are cleared wherever the ring wraps: before, within or after the gap.
#[test]
fn a_gap_may_lie_across_the_end_of_the_ring() {
    for start in 0..5 {
        let mut window = linear(5);
        (start..start + 5).for_each(|i| window.write(f64::from(i), 5.0));
        window.write(f64::from(start + 7), 5.0);
        assert_eq!(window.read(f64::from(start + 7)), 3.0, "(5 + 5 + 0 + 0 + 5) / 5, from second {start}");
        assert_eq!(window.total, [15.0], "from second {start}");
        assert_eq!(window.length, Duration::from_secs(5));
    }
}

#[test]
fn values_of_one_second_add_up() {
    let mut window = linear(60);
    for second in 0..5 {
        (0..5).for_each(|i| window.write(f64::from(second) + 0.1, f64::from(second + i)));
    }
    let sums: Vec<f64> = (0..5).map(|second| window.ring[window.index(EPOCH + second)][0]).collect();
    assert_eq!(sums, [10.0, 15.0, 20.0, 25.0, 30.0]);
    let mut jitter = linear(6);
    [0.0, 1.0, 2.0, 3.0, 4.0, 4.99].into_iter().for_each(|secs| jitter.write(secs, 10.0));
    assert_eq!(jitter.read(4.99), 12.0, "60 / 5");
}

#[test]
fn windows_of_different_length_see_different_ends() {
    let (mut six, mut two) = (linear(6), linear(2));
    for i in 0..10 {
        six.write(f64::from(i), f64::from(5 + i));
        two.write(f64::from(i), f64::from(5 + i));
    }
    assert_eq!((six.read(9.0), two.read(9.0)), (11.5, 13.5));
}

#[test]
fn silence_does_not_decay_then_drops_to_zero() {
    let (mut long, mut short) = (linear(60), linear(6));
    for i in 0..4 {
        long.write(f64::from(i), 10.0);
        short.write(f64::from(i), 10.0);
    }
    assert_eq!((long.read(62.0), long.read(63.0)), (10.0, 0.0));
    assert_eq!((short.read(8.0), short.read(9.0)), (10.0, 0.0));
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
fn coarser_slots_begin_at_multiples_of_their_length() {
    let with = |length, granularity| {
        Window::<1>::with_granularity(Duration::from_secs(length), Aggregation::Linear, granularity)
    };
    let mut five = with(120, 5);
    [(0.0, 1.0), (3.0, 11.0), (6.0, 1.0)].into_iter().for_each(|(secs, value)| five.write(secs, value));
    let slot = EPOCH / 5;
    assert_eq!((five.ring[five.index(slot)], five.ring[five.index(slot + 1)]), ([12.0], [1.0]));
    let mut three = with(5, 3);
    assert_eq!(three.slots, 2, "a slot begun counts");
    for (secs, value) in [(0.0, 10.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 5.0), (5.0, 6.0), (6.0, 7.0)] {
        three.write(secs, value);
    }
    let mut ring = [three.ring[0][0], three.ring[1][0]];
    ring.sort_by(f64::total_cmp);
    assert_eq!(ring, [7.0, 15.0]);
}

#[test]
fn a_resize_keeps_the_newest_slots() {
    let mut window = linear(5);
    (0..5).for_each(|i| window.write(f64::from(i), f64::from(i + 2)));
    window.resize(Duration::from_secs(10), Aggregation::Linear, at(4.5));
    assert_eq!(window.read(4.0), 4.0);
    window.write(5.0, 7.0);
    assert_eq!(window.read(5.0), 4.5, "27 / 6");
    window.resize(Duration::from_secs(4), Aggregation::Linear, at(5.0));
    assert_eq!((window.total, window.read(5.0)), ([22.0], 5.5));
    window.resize(Duration::from_secs(4), Aggregation::Linear, at(900.0));
    assert_eq!(window.read(5.0), 5.5, "the same length changes nothing");
}

#[test]
fn a_resize_dilutes_a_young_window() {
    for (to, expected) in [(30, 0.666_667), (120, 0.333_333)] {
        let mut window = linear(60);
        window.write(0.0, 10.0);
        window.write(1.0, 10.0);
        window.resize(Duration::from_secs(to), Aggregation::Linear, at(1.0));
        assert_eq!(window.read(1.0), expected, "to {to} s");
    }
}

/// Goal: data older than the *old* length is removed, and the time of the newest slot is kept.
#[test]
fn a_resize_long_after_the_data_forgets_it() {
    let mut window = linear(6);
    window.write(0.0, 10.0);
    window.resize(Duration::from_secs(60), Aggregation::Linear, at(7.0));
    assert_eq!((window.read(0.0), window.first, window.is_empty(at(60.0))), (0.0, None, false));
    window.write(0.5, 30.0);
    assert_eq!(window.read(0.5), 0.5, "in the same slot, over all 60 of them");
    window.write(2.0, 30.0);
    assert_eq!(window.read(2.0), 60.0, "a new slot begins the data anew: what came before is beyond its age");
}

#[test]
fn averages_are_rounded_to_six_digits() {
    for (value, expected) in [(3.6e-17, 0.0), (-3.6e-17, 0.0), (1.234_567_8, 1.234_568), (12_345.0, 12_345.0)] {
        let mut window = linear(6);
        window.write(0.0, value);
        assert_eq!(window.read(0.0), expected, "{value}");
    }
}

/// Returns the weight of the newest of this many slots.
fn weight(slots: u32) -> f64 {
    alpha(Aggregation::WeightedExponential, slots).expect("weighted")
}

#[test]
fn the_newest_slots_weight_is_exact_where_it_matters() {
    let table = [
        (1, 0.9999),
        (2, 0.99),
        (3, 0.953_584),
        (4, 0.9),
        (5, 0.841_511),
        (6, 0.784_557),
        (10, 0.601_893),
        (20, 0.369_043),
        (30, 0.264_358),
        (40, 0.205_672),
        (41, 0.201_198),
        (42, 0.2),
        (60, 0.2),
        (3600, 0.2),
    ];
    for (slots, expected) in table {
        let alpha = weight(slots);
        assert!((alpha - expected).abs() < 5e-7, "{slots}: {alpha}");
    }
    assert_eq!((weight(1), weight(2), weight(4)), (0.9999, 0.99, 0.9), "to the last bit");
}

#[test]
fn weighted_values_decay_with_age() {
    let mut window = weighted(5);
    let a = weight(5);
    window.write(0.0, 2.0);
    assert_close(window.read(0.0), 2.0 * a, "one value");
    assert_close(window.read(1.0), 2.0 * a * (1.0 - a), "a second later");
    window.write(1.0, 2.0);
    assert_close(window.read(1.0), 2.0 * a + 2.0 * a * (1.0 - a), "and another");
    let mut window = weighted(5);
    (0..5).for_each(|i| window.write(f64::from(i), f64::from(i + 2)));
    assert_close(window.read(4.0), 5.811_580, "2 to 6");
    assert_eq!((window.read(9.0), window.read(14.0)), (0.0, 0.0));
}

/// Goal: averages equal Knative's, for an α that no number of slots yields.
#[test]
fn the_newest_value_weighs_most() {
    for (values, expected) in [([10.0, 10.0, 5.0, 5.0], 5.544), ([5.0, 5.0, 10.0, 10.0], 9.072)] {
        let mut window = Window { alpha: Some(0.6), ..weighted(4) };
        values.into_iter().enumerate().for_each(|(i, value)| window.write(i as f64, value));
        assert_close(window.read(3.0), expected, "oldest first");
    }
}

#[test]
fn a_weighted_window_under_reports_at_start() {
    for (slots, expected) in [
        (60, [2.0, 3.6, 4.88, 6.7232, 8.926_258, 9.884_708, 9.999_985]),
        (6, [7.845_57, 9.535_843, 9.9, 9.995_358, 9.999, 9.999, 9.999]),
    ] {
        for (writes, expected) in [1, 2, 3, 5, 10, 20, 60].into_iter().zip(expected) {
            let mut window = weighted(slots);
            (0..writes).for_each(|i| window.write(f64::from(i), 10.0));
            let got = window.read(f64::from(writes - 1));
            assert!((got - expected).abs() < 1e-4, "{slots} slots, {writes} writes: {got}");
        }
    }
}

#[test]
fn a_sleeping_window_holds_no_ring() {
    let mut window = linear(6);
    assert_eq!(window.ring.capacity(), 0, "before the first value");
    window.write(0.0, 10.0);
    window.release(at(11.9));
    assert_eq!(window.ring.len(), 6, "a late value may still meet it");
    window.release(at(12.0));
    assert_eq!(window.ring.capacity(), 0);
    window.write(12.0, 6.0);
    assert_eq!(window.read(12.0), 6.0);
}

#[test]
fn absurd_lengths_are_kept_within_reason() {
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
