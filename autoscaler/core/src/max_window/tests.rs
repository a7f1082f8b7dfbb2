//! Tests of the sliding maximum against Knative's results and a simple model.

use proptest::prelude::*;

use super::*;

fn window(slots: u64) -> MaxWindow {
    MaxWindow::with_granularity(Duration::from_secs(slots), 1)
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
        let (mut clock, mut newest, mut recorded) = (1000, i64::MIN, Vec::new());
        for (step, value) in values {
            clock += step;
            newest = newest.max(clock); // Slot that counts if the clock went backwards.
            recorded.push((newest, value));
            let expected = recorded.iter().filter(|(slot, _)| newest - slot < slots).map(|(_, v)| *v).max();
            prop_assert_eq!(Some(window.record(Timestamp::from_secs(clock), value)), expected);
            prop_assert!(window.entries.len() as i64 <= slots);
        }
    }
}
