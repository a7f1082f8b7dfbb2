//! Tests that the invariants of the three simulations hold over the first seeds, and that each depends on its rules.

use sim::{Summary, Violation, Without, holders, ports, run};
use std::fmt::Debug;
use std::ops::Range;

/// Runs the first seeds, none of which may violate an invariant.
fn runs<S>(seeds: u64, run: impl Fn(u64) -> Result<S, Violation>) -> Vec<S> {
    (0..seeds).map(|seed| run(seed).unwrap_or_else(|violation| panic!("{violation}"))).collect()
}

/// Returns the first violation of one of these invariants, without a rule.
fn violation<S>(
    without: impl Debug,
    seeds: Range<u64>,
    invariants: &[&str],
    run: impl Fn(u64) -> Result<S, Violation>,
) -> String {
    let mut violations = seeds.clone().filter_map(|seed| run(seed).err()).map(|violation| violation.what);
    let found = violations.find(|what| invariants.iter().any(|known| what.starts_with(known)));
    found.unwrap_or_else(|| panic!("no seed of {seeds:?} violates {invariants:?} without {without:?}"))
}

/// Goal: the invariants of scaling hold, and the runs contain enough activity.
#[test]
fn invariants_of_scaling_hold() {
    const SEEDS: u64 = 200;
    let runs = runs(SEEDS, |seed| run(seed, None, false));
    let sum = |count: fn(&Summary) -> u64| runs.iter().map(count).sum::<u64>();
    for (name, total, bound) in [
        ("pokes", sum(|run| run.pokes), SEEDS),
        ("patches", sum(|run| run.patches), SEEDS),
        ("served", sum(|run| run.served), SEEDS),
        ("conflicts", sum(|run| run.conflicts), 0),
        ("hand_over_waits", sum(|run| run.hand_over_waits), 0),
        ("writes_waited", sum(|run| run.writes_waited), SEEDS),
        ("failed_measurements", sum(|run| run.failed_measurements), SEEDS),
        ("rival_writes", sum(|run| run.rival_writes), 0),
        ("contested", sum(|run| run.contested), 0),
        ("promoted", sum(|run| run.promoted), 0),
        ("second_hops", sum(|run| run.second_hops), 0),
    ] {
        assert!(total > bound, "{name}: {total}");
    }
    // A third hop is needed only if a paused instance resumes after the lease has changed hands twice.
    let third_hops = sum(|run| u64::from(run.misrouted > 0));
    assert!(third_hops * 100 <= SEEDS, "two hops are not enough in {third_hops} of {SEEDS} seeds");
}

#[test]
fn invariants_of_scaling_depend_on_each_rule() {
    let rows: [(_, _, &[&str]); 6] = [
        (Without::Lease, "at most one writer", &["while"]),
        (Without::Guard, "at most one writer", &["while"]),
        (Without::Proof, "the last pod leaves", &["are gone"]),
        (Without::Attestation, "missing data is never zero load", &["last attested at", "is scaled to zero"]),
        (Without::Doubt, "a failing metric never scales down", &["has failed since"]),
        (Without::Contest, "a contested scale waits", &["asks for"]),
    ];
    for (without, invariant, texts) in rows {
        let what = violation(without, 0..200, &[invariant], |seed| run(seed, Some(without), false));
        assert!(texts.iter().any(|text| what.contains(text)), "{what}");
    }
}

/// Goal: the invariants of port numbers hold, and the runs contain enough activity.
#[test]
fn invariants_of_ports_hold() {
    const SEEDS: u64 = 50;
    let runs = runs(SEEDS, |seed| ports::run(seed, None, false));
    let sum = |count: fn(&ports::Summary) -> u64| runs.iter().map(count).sum::<u64>();
    for (name, total, bound) in [
        ("created", sum(|run| run.created), 6 * SEEDS),
        ("allocated", sum(|run| run.allocated), 10 * SEEDS),
        ("reused", sum(|run| run.reused), SEEDS / 2),
        ("conflicts", sum(|run| run.conflicts), SEEDS),
        ("disagreements", sum(|run| run.disagreements), SEEDS),
        ("problems", sum(|run| run.problems), SEEDS),
        ("connections", sum(|run| run.connections), 1000 * SEEDS),
        ("unreachable", sum(|run| run.unreachable), 0),
    ] {
        assert!(total > bound, "{name}: {total}");
    }
}

/// Goal: each invariant depends on its rule. Method: a thousand seeds, from shortly before the first violation.
#[test]
fn invariants_of_ports_depend_on_each_rule() {
    const ONE: &str = "one workload for each number";
    const OPEN: &str = "no slice leads to a closed port";
    for (without, invariant, from) in [
        (ports::Without::Arbiter, ONE, 100),
        (ports::Without::Ledger, ONE, 0),
        (ports::Without::Proof, OPEN, 0),
        (ports::Without::Rest, ONE, 0),
        (ports::Without::Slices, OPEN, 0),
        (ports::Without::Open, OPEN, 0),
    ] {
        violation(without, from..from + 1000, &[invariant], |seed| ports::run(seed, Some(without), false));
    }
}

/// Goal: the invariants of holders hold, and the runs contain enough activity.
#[test]
fn invariants_of_holders_hold() {
    const SEEDS: u64 = 60;
    let runs = runs(SEEDS, |seed| holders::run(seed, None, false));
    let sum = |count: fn(&holders::Summary) -> u64| runs.iter().map(count).sum::<u64>();
    for (name, total, bound) in [
        ("served", sum(|run| run.served), 500 * SEEDS),
        ("relayed", sum(|run| run.relayed), 100 * SEEDS),
        ("sent_back", sum(|run| run.sent_back), SEEDS),
        ("cut", sum(|run| run.cut), 0),
        ("gone", sum(|run| run.gone), SEEDS),
        ("moves", sum(|run| run.moves), 3 * SEEDS),
        ("faults", sum(|run| run.faults), 5 * SEEDS),
    ] {
        assert!(total > bound, "{name}: {total}");
    }
}

#[test]
fn invariants_of_holders_depend_on_each_rule() {
    const LIMIT: &str = "no pod above its limit";
    const ONE: &str = "at most one activator holds a shard";
    const IDLE: &str = "no request waits beside an idle slot";
    const FREE: &str = "in the end every slot is free";
    let rows: [(_, &[&str]); 6] = [
        (holders::Without::Confirmation, &[LIMIT]),
        (holders::Without::Confirmation, &[ONE]),
        (holders::Without::Uses, &[LIMIT]),
        (holders::Without::Second, &[LIMIT, ONE]),
        (holders::Without::Stop, &[LIMIT, ONE]),
        (holders::Without::Return, &[IDLE, FREE]),
    ];
    for (without, invariants) in rows {
        violation(without, 0..40, invariants, |seed| holders::run(seed, Some(without), false));
    }
}

/// Goal: a seed always produces the same run, down to the last event.
#[test]
fn a_seed_replays() {
    for seed in [3, 14, 15] {
        let [one, other] = [(); 2].map(|()| {
            let (ports, holders) = (ports::run(seed, None, false), holders::run(seed, None, false));
            format!("{:?} {ports:?} {holders:?}", run(seed, None, false))
        });
        assert_eq!(one, other, "seed {seed}");
    }
}
