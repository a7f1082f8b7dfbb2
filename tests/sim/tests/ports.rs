//! What must hold of port numbers holds over the first seeds, and depends on each rule that is there for it.

use sim::ports::{Summary, Without, run};

const SEEDS: u64 = 100;
/// Enough for each rule to be missed.
const SEEDS_WITHOUT: u64 = 1000;

/// Goal: it holds, and the runs are not idle ones.
#[test]
fn numbers_are_nobody_elses_and_slices_lead_to_open_ports() {
    let mut all = Summary::default();
    for seed in 0..SEEDS {
        let summary = run(seed, None, false).unwrap_or_else(|broken| panic!("{broken}"));
        all.births += summary.births;
        all.given += summary.given;
        all.returned += summary.returned;
        all.conflicts += summary.conflicts;
        all.disagreements += summary.disagreements;
        all.connections += summary.connections;
        all.unreachable += summary.unreachable;
        all.problems += summary.problems;
        all.listed += summary.listed;
    }
    assert!(all.births > 6 * SEEDS && all.given > 10 * SEEDS && all.returned > 4 * SEEDS, "{all:?}");
    assert!(all.conflicts > SEEDS && all.disagreements > SEEDS && all.problems > SEEDS, "{all:?}");
    assert!(all.connections > 1000 * SEEDS && all.unreachable > 0, "{all:?}");
}

/// Goal: a number is not closed where another process took it out of a slice a moment ago, of which nodes have not heard.
/// Method: the seed that has shown it: an owner that heard nothing of slices for more than a minute.
#[test]
fn who_follows_slices_has_the_time_to_follow() {
    run(197, None, false).unwrap_or_else(|broken| panic!("{broken}"));
}

/// Goal: a seed is a run: the same events, to the last one.
#[test]
fn a_seed_replays() {
    for seed in [3, 14, 15] {
        let [one, other] = [(); 2].map(|()| format!("{:?}", run(seed, None, false)));
        assert_eq!(one, other, "seed {seed}");
    }
}

/// What the first seed breaks without a rule.
///
/// `from`: a little before the first one that does.
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
fn without_the_way_back_a_number_is_given_away_while_it_is_open() {
    breaks(Without::Return, ONE, 0);
}

#[test]
fn without_its_pauses_old_slices_lead_to_closed_ports() {
    breaks(Without::Settle, OPEN, 0);
}

#[test]
fn without_the_list_a_number_is_closed_that_a_slice_has() {
    breaks(Without::List, OPEN, 1580);
}
