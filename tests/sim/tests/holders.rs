//! Tests that the invariants about a workload's holders hold over the first seeds and depend on each rule. Compares
//! waiting times with one ideal queue.

use sim::holders::{Arrivals, Figures, Setting, Summary, Without, figures, run};
use std::time::Duration;

const SEEDS: u64 = 60;
/// Number of seeds that suffices to detect each missing rule.
const SEEDS_WITHOUT: u64 = 40;

/// Goal: the invariants hold, and the runs contain enough activity.
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

/// Goal: a seed always produces the same run, down to the last event.
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

/// Goal: load is served equally. Method: 80 requests a second on five pods with one slot, 50 ms each plus transit, over
/// one to five activators, evenly spaced. The p99 of each activator is below 60 ms, and each pod gets 16 to 24 percent
/// of the requests.
#[test]
fn equal_load_is_served_equally() {
    for activators in [1, 2, 3, 5] {
        let Figures { p99, shares, .. } = figures(1, &setting(activators, Arrivals::Even));
        assert!(p99.iter().all(|p99| *p99 < Duration::from_millis(60)), "{activators}: {p99:?}");
        assert!(shares.iter().all(|share| (0.16..=0.24).contains(share)), "{activators}: {shares:?}");
    }
}

/// Goal: with random arrivals the p99 is at most 1.1 times that of one ideal queue, whichever activator holds the pods.
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

/// Goal: pods divided between two holders serve random arrivals like one ideal queue, even with nine of ten slots busy.
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
