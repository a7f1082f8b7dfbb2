//! Tests of the sliding maximum against Knative's results and a simple model.

use proptest::prelude::*;

use super::*;

/// Creates a window of `slots` slots of one second.
fn window(slots: u64) -> MaxWindow {
    MaxWindow::with_granularity(Duration::from_secs(slots), 1)
}

fn maxima(slots: u64, values: &[(i64, i32)]) -> Vec<i32> {
    let mut window = window(slots);
    values.iter().map(|(slot, value)| window.record(Timestamp::from_secs(*slot), *value)).collect()
}

#[test]
fn a_value_holds_for_a_window_and_no_longer() {
    let in_order = |values: &[i32]| values.iter().enumerate().map(|(i, v)| (i as i64, *v)).collect::<Vec<_>>();
    let one_slot = |values: &[i32]| values.iter().map(|v| (1, *v)).collect::<Vec<_>>();
    for (values, expected) in [
        (in_order(&[5, 6, 5, 5, 5, 5, 5]), vec![5, 6, 6, 6, 6, 6, 5]),
        (
            in_order(&[5, 8, 5, 7, 5, 5, 1, 4, 4, 4, 4, 9, 3, 4, 2, 1, 0]),
            vec![5, 8, 8, 8, 8, 8, 7, 7, 5, 5, 4, 9, 9, 9, 9, 9, 4],
        ),
        (vec![(0, 6), (1, 5), (2, 2), (6, 1)], vec![6, 6, 6, 2]),
        (one_slot(&[7, 6, 5, 4, 3, 2, 1]), vec![7; 7]),
        (one_slot(&[1, 2, 3, 4, 5, 6, 7]), vec![1, 2, 3, 4, 5, 6, 7]),
        (vec![(0, 5), (1, 8)], vec![5, 8]),
        (vec![(0, 6), (0, 5)], vec![6, 6]),
        (vec![(0, 5), (6, 4)], vec![5, 4]),
    ] {
        assert_eq!(maxima(5, &values), expected, "{values:?}");
    }
}

#[test]
fn a_delay_is_rounded_up_to_evaluations() {
    for (secs, slots) in [(2, 1), (3, 2), (5, 3), (60, 30), (300, 150)] {
        assert_eq!(MaxWindow::new(Duration::from_secs(secs)).slots, slots, "{secs} s");
    }
    assert_eq!(MaxWindow::new(Duration::from_millis(4001)).slots, 3, "a fraction of a second counts");
}

#[test]
fn a_new_delay_counts_from_the_next_value() {
    let mut window = window(5);
    assert_eq!(window.record(Timestamp::from_secs(0), 9), 9);
    window.resize(Duration::from_secs(3));
    assert_eq!(window.record(Timestamp::from_secs(2), 1), 9);
    assert_eq!(window.record(Timestamp::from_secs(3), 1), 1);
    window.resize(Duration::from_secs(100));
    assert_eq!(window.record(Timestamp::from_secs(50), 0), 1);
}

proptest! {
    /// Goal: the head is the maximum of all values within the window, even if the clock goes backwards, and memory is
    /// bounded.
    #[test]
    fn the_head_is_the_maximum(slots in 1_i64..12, values in prop::collection::vec((-4_i64..9, 0_i32..50), 1..80)) {
        let mut window = window(slots as u64);
        let (mut clock, mut newest, mut seen) = (1000, i64::MIN, Vec::new());
        for (step, value) in values {
            clock += step;
            newest = newest.max(clock); // Slot that counts if the clock went backwards.
            seen.push((newest, value));
            let expected = seen.iter().filter(|(slot, _)| newest - slot < slots).map(|(_, v)| *v).max();
            prop_assert_eq!(Some(window.record(Timestamp::from_secs(clock), value)), expected);
            prop_assert!(window.entries.len() as i64 <= slots);
        }
    }
}
