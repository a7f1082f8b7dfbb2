//! What must hold of a workload's holders holds over the first seeds, and depends on each rule that is there for it; and
//! how long requests wait beside one queue that knows everything.

use sim::holders::{Arrivals, Figures, Setting, Summary, Without, figures, run};
use std::time::Duration;

const SEEDS: u64 = 60;
/// Enough for each rule to be missed.
const SEEDS_WITHOUT: u64 = 40;

/// Goal: it holds, and the runs are not idle ones.
#[test]
fn no_pod_is_above_its_limit_and_no_slot_is_lost() {
    let mut all = Summary::default();
    for seed in 0..SEEDS {
        let summary = run(seed, None, false).unwrap_or_else(|broken| panic!("{broken}"));
        all.served += summary.served;
        all.relayed += summary.relayed;
        all.sent_back += summary.sent_back;
        all.cut += summary.cut;
        all.gone += summary.gone;
        all.moves += summary.moves;
        all.faults += summary.faults;
    }
    assert!(all.served > 500 * SEEDS && all.relayed > 100 * SEEDS && all.moves > 3 * SEEDS, "{all:?}");
    assert!(all.cut > 0 && all.sent_back > SEEDS && all.gone > SEEDS && all.faults > 5 * SEEDS, "{all:?}");
}

/// Goal: a seed is a run: the same events, to the last one.
#[test]
fn a_seed_replays() {
    for seed in [3, 14, 15] {
        let [one, other] = [(); 2].map(|()| format!("{:?}", run(seed, None, false)));
        assert_eq!(one, other, "seed {seed}");
    }
}

fn breaks(without: Without, invariants: &[&str]) {
    let broken = (0..SEEDS_WITHOUT).filter_map(|seed| run(seed, Some(without), false).err());
    let broken = broken.map(|broken| broken.what).find(|what| invariants.iter().any(|known| what.starts_with(known)));
    assert!(broken.is_some(), "{SEEDS_WITHOUT} seeds hold without {without:?}: the simulator has no teeth");
}

const LIMIT: &str = "no pod above its limit";
const ONE: &str = "one holds a lot";
const IDLE: &str = "no request waits beside an idle slot";
const BACK: &str = "in the end every slot has come back";

#[test]
fn without_confirmation_two_hold_a_workload() {
    breaks(Without::Confirmation, &[LIMIT]);
    breaks(Without::Confirmation, &[ONE]);
}

#[test]
fn without_what_still_runs_a_slot_is_granted_twice() {
    breaks(Without::Uses, &[LIMIT]);
}

#[test]
fn without_the_second_one_that_still_runs_is_believed_dead() {
    breaks(Without::Second, &[LIMIT, ONE]);
}

#[test]
fn without_stopping_the_second_is_not_enough() {
    breaks(Without::Stop, &[LIMIT, ONE]);
}

#[test]
fn without_its_return_a_slot_is_lost() {
    breaks(Without::Return, &[IDLE, BACK]);
}

fn setting(activators: usize, arrivals: Arrivals) -> Setting {
    Setting {
        activators,
        pods: 5,
        limit: 1,
        rate: 80.0 / activators as f64,
        work: Duration::from_micros(50_500),
        arrivals,
        lasts: Duration::from_secs(60),
        way: Duration::from_micros(400),
    }
}

/// Goal: 80 requests a second on five pods of one slot, 50 ms and the way there, over one activator to five, evenly spaced: no
/// activator's p99 is above 60 ms, and no pod has less than 16 or more than 24 parts of a hundred.
#[test]
fn equal_load_is_served_equally() {
    for activators in [1, 2, 3, 5] {
        let Figures { p99, shares, .. } = figures(1, &setting(activators, Arrivals::Even));
        assert!(p99.iter().all(|p99| *p99 < Duration::from_millis(60)), "{activators}: {p99:?}");
        assert!(shares.iter().all(|share| (0.16..=0.24).contains(share)), "{activators}: {shares:?}");
    }
}

/// Goal: with random arrivals the p99 is at most 1.1 times that of one queue before all pods, whoever holds them.
#[test]
fn several_activators_are_one_queue() {
    for activators in [1, 2, 5] {
        for seed in 0..5 {
            let figures = figures(seed, &setting(activators, Arrivals::Poisson));
            let ratio = figures.p99_all.as_secs_f64() / figures.p99_ideal.as_secs_f64();
            assert!(ratio < 1.1, "{activators}, seed {seed}: {ratio} {figures:?}");
        }
    }
}

/// Goal: pods that need two holders, divided among them, serve random arrivals as one queue before all pods would, though
/// clients come to one activator alone; nine of ten slots are busy.
#[test]
fn a_division_costs_nothing() {
    for activators in [2, 3] {
        for seed in 0..2 {
            let setting = Setting {
                pods: 640,
                rate: 0.9 * 640.0 / 0.0505 / activators as f64,
                lasts: Duration::from_secs(5),
                ..setting(activators, Arrivals::Poisson)
            };
            let figures = figures(seed, &setting);
            let ratio = figures.p99_all.as_secs_f64() / figures.p99_ideal.as_secs_f64();
            assert!(ratio < 1.1, "{activators}, seed {seed}: {ratio}");
        }
    }
}
