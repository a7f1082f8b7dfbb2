//! Tests that the invariants about port numbers hold over the first seeds and depend on each rule.

use sim::ports::{Summary, Without, run};

const SEEDS: u64 = 50;
/// Number of seeds that suffices to detect each missing rule.
const SEEDS_WITHOUT: u64 = 1000;

/// Goal: the invariants hold, and the runs contain enough activity.
#[test]
fn numbers_are_nobody_elses_and_slices_lead_to_open_ports() {
    let mut all = Summary::default();
    for seed in 0..SEEDS {
        let summary = run(seed, None, false).unwrap_or_else(|broken| panic!("{broken}"));
        all.births += summary.births;
        all.given += summary.given;
        all.reused += summary.reused;
        all.conflicts += summary.conflicts;
        all.disagreements += summary.disagreements;
        all.connections += summary.connections;
        all.unreachable += summary.unreachable;
        all.problems += summary.problems;
    }
    assert!(all.births > 6 * SEEDS && all.given > 10 * SEEDS && all.reused > SEEDS / 2, "{all:?}");
    assert!(all.conflicts > SEEDS && all.disagreements > SEEDS && all.problems > SEEDS, "{all:?}");
    assert!(all.connections > 1000 * SEEDS && all.unreachable > 0, "{all:?}");
}

/// Goal: a seed always produces the same run, down to the last event.
#[test]
fn a_seed_replays() {
    for seed in [3, 14, 15] {
        let [one, other] = [(); 2].map(|()| format!("{:?}", run(seed, None, false)));
        assert_eq!(one, other, "seed {seed}");
    }
}

/// Checks that some seed violates the invariant without a rule.
///
/// `from` is slightly below the first seed that does.
fn breaks(without: Without, invariant: &str, from: u64) {
    let broken = (from..from + SEEDS_WITHOUT).filter_map(|seed| run(seed, Some(without), false).err());
    let broken = broken.map(|broken| broken.what).find(|what| what.starts_with(invariant));
    assert!(broken.is_some(), "{SEEDS_WITHOUT} seeds hold without {without:?}: the simulator has no teeth");
}

const ONE: &str = "one workload for each number";
const OPEN: &str = "no slice leads to a closed port";

#[test]
fn without_compare_and_set_two_have_a_number() {
    breaks(Without::Arbiter, ONE, 100);
}

#[test]
fn without_the_ledger_an_edited_status_moves_a_number() {
    breaks(Without::Ledger, ONE, 0);
}

#[test]
fn without_proofs_slices_lead_to_closed_ports() {
    breaks(Without::Proof, OPEN, 0);
}

#[test]
fn without_a_rest_a_number_is_given_away_while_it_is_open() {
    breaks(Without::Rest, ONE, 0);
}

#[test]
fn without_a_look_at_slices_a_number_is_closed_that_a_slice_names() {
    breaks(Without::Slices, OPEN, 0);
}

#[test]
fn without_the_time_after_a_release_old_slices_lead_to_closed_ports() {
    breaks(Without::Open, OPEN, 0);
}
