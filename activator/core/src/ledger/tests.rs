//! Tests of the ledger: which newcomers are admitted and which holders give way, in tables and under random operations.

#![allow(clippy::arc_with_non_send_sync, clippy::type_complexity, reason = "rows of holders, in one thread")]

use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Holder with a number, and the second since which it is idle.
#[derive(Debug, PartialEq)]
struct One(u32, Rc<Cell<Option<u32>>>);

impl Holder for One {
    fn idle_since(&self) -> Option<u32> {
        self.1.get()
    }
}

/// Creates a holder that is idle since the given second, or busy.
fn one(number: u32, idle: Option<u32>) -> Arc<One> {
    Arc::new(One(number, Rc::new(Cell::new(idle))))
}

fn group(workload: u64, host: u8) -> HolderGroup {
    HolderGroup { workload, address: [10, 0, 0, host].into() }
}

/// Returns the numbers of holders that give way.
fn numbers(holders: &[Arc<One>]) -> Vec<u32> {
    holders.iter().map(|holder| holder.0).collect()
}

/// Goal: of full ledgers, the right holder gives way to a busy newcomer, or the newcomer is refused. Rows: the four
/// holders (two digits for workload and host, second since which it is idle), then newcomers (workload and host) with
/// the holders that give way, or `Err` if it is refused.
#[test]
fn the_largest_holder_gives_way() {
    type Newcomer = (u8, Result<&'static [u32], ()>);
    let (idle, busy) = (Some, None);
    let rows: [(&str, [(u8, Option<u32>); 4], &[Newcomer]); 9] = [
        ("room", [(11, busy), (21, busy), (31, busy), (41, busy)], &[]),
        ("youngest of the largest", [(11, busy), (12, busy), (11, busy), (11, busy)], &[(21, Ok(&[3]))]),
        (
            "the longest idle before any busy one",
            [(11, idle(7)), (11, busy), (11, idle(5)), (11, busy)],
            &[(21, Ok(&[2]))],
        ),
        ("its own idle ones", [(11, busy), (11, idle(7)), (11, busy), (21, idle(3))], &[(11, Ok(&[1]))]),
        (
            "none, if the newcomer's workload has most",
            [(11, busy), (11, busy), (11, busy), (21, idle(3))],
            &[(11, Err(()))],
        ),
        (
            "the largest address of the newcomer's workload",
            [(11, busy), (11, busy), (11, busy), (21, busy)],
            &[(12, Ok(&[2]))],
        ),
        // The newcomer of workload 2 replaces a holder of that workload at another address.
        (
            "equal ones keep what they have",
            [(11, busy), (11, busy), (21, busy), (21, busy)],
            &[(11, Err(())), (22, Ok(&[3]))],
        ),
        (
            "workloads before addresses: all come from one",
            [(11, busy), (11, busy), (11, busy), (21, busy)],
            &[(31, Ok(&[2])), (21, Err(()))],
        ),
        ("many alike: the idle", [(11, busy), (12, idle(4)), (13, busy), (14, idle(3))], &[(15, Ok(&[3]))]),
    ];
    for (case, holders, newcomers) in rows {
        let mut ledger = Ledger::new(4, 4);
        let mut take = |number, whose: u8, idle| {
            let (taken, others) =
                ledger.take(group(u64::from(whose / 10), whose % 10), 1, one(number, idle), 10, false);
            taken.map(|_| numbers(&others)).map_err(|_| ())
        };
        for (number, (whose, idle)) in (0..).zip(holders) {
            assert_eq!(take(number, whose, idle), Ok(vec![]), "{case}: {number}");
        }
        for (number, (whose, expected)) in (4..).zip(newcomers) {
            assert_eq!(take(number, *whose, busy), expected.map(<[u32]>::to_vec), "{case}: {number}");
        }
    }
}

/// Goal: a holder that has been idle for long gives way to any newcomer, but only as many give way as are needed.
#[test]
fn a_stale_holder_gives_way_to_any_newcomer() {
    let mut ledger = Ledger::new(4, 4);
    for (number, workload, idle) in [(0, 2, Some(10)), (1, 3, Some(11)), (2, 1, None), (3, 1, None)] {
        ledger.take(group(workload, 1), 1, one(number, idle), 12, false).0.expect("room");
    }
    let mut comes = |number, now| {
        let (taken, others) = ledger.take(group(1, 1), 1, one(number, None), now, false);
        (taken.is_ok(), numbers(&others))
    };
    assert_eq!(comes(4, 9 + STALE), (false, vec![]), "not idle for long enough");
    assert_eq!(comes(5, 10 + STALE), (true, vec![0]));
    assert_eq!(comes(6, 10 + STALE), (false, vec![]));
    assert_eq!(comes(7, 11 + STALE), (true, vec![1]));
}

/// Goal: a holder of nothing never gives way, however idle or young it is, because its end would free nothing.
#[test]
fn a_holder_of_nothing_never_gives_way() {
    let rows: [(&str, u64, u64, Option<u32>, (bool, &[u32])); 3] = [
        ("stale", 1, 2, Some(0), (false, &[])),
        ("idle", 1, 1, Some(50), (false, &[])),
        ("young", 2, 1, None, (true, &[0])),
    ];
    for (case, newcomer, workload, idle, expected) in rows {
        let mut ledger = Ledger::new(4, 4);
        ledger.take(group(1, 1), 4, one(0, None), 60, false).0.expect("room");
        for number in 1..4 {
            ledger.enter(group(workload, 1), one(number, idle));
        }
        let (taken, others) = ledger.take(group(newcomer, 1), 1, one(9, None), 60, false);
        assert_eq!((taken.is_ok(), numbers(&others).as_slice()), expected, "{case}");
    }
}

/// Goal: the newest few holders get time to start, whatever the unit of the resource; here bytes.
#[test]
fn only_the_newest_holders_get_time_to_start() {
    const PART: u64 = 2 << 20;
    for (idle, expected) in [(0, 0), (127, 126)] {
        let mut ledger = Ledger::new(128 * PART, 0);
        for number in 0..128 {
            let holder = one(number, (number == idle).then_some(5));
            ledger.take(group(1, 1), PART, holder, 6, false).0.expect("room");
        }
        let (_, others) = ledger.take(group(2, 1), PART, one(200, None), 6, false);
        assert_eq!(numbers(&others), [expected], "{idle} is idle");
    }
}

/// Goal: while all holders are busy, a burst of newcomers does not search all holders each time, whether it displaces
/// holders or not. The youngest holders of the largest workload still give way.
#[test]
fn busy_holders_are_searched_once_per_second() {
    struct Counted(u32, Rc<Cell<u32>>);
    impl Holder for Counted {
        fn idle_since(&self) -> Option<u32> {
            self.1.set(self.1.get() + 1);
            None
        }
    }
    for (case, workload, idle_only, expected) in
        [("of any workload", 0, true, 0), ("of the largest", 1, false, 0), ("of others", 2, false, 50)]
    {
        let (mut ledger, idle_queries) = (Ledger::new(1000, 1000), Rc::new(Cell::new(0)));
        for number in 0..1000 {
            ledger.take(group(1, 1), 1, Arc::new(Counted(number, idle_queries.clone())), 1, false).0.expect("room");
        }
        let mut displaced = Vec::new();
        for number in 0..50 {
            let comer = Arc::new(Counted(number, idle_queries.clone()));
            displaced.extend(ledger.take(group(workload, 1), 1, comer, 1, idle_only).1.iter().map(|one| one.0));
        }
        assert_eq!(displaced, (0..expected).map(|n| 999 - n).collect::<Vec<u32>>(), "{case}");
        assert!(idle_queries.get() < 3000, "{case}: {}", idle_queries.get());
    }
}

/// Goal: a newcomer that may displace only idle holders displaces no busy one.
#[test]
fn a_newcomer_limited_to_idle_holders_displaces_no_busy_one() {
    let mut ledger = Ledger::new(3, 3);
    let state = Rc::new(Cell::new(None));
    for number in 0..3 {
        ledger.take(group(1, 1), 1, Arc::new(One(number, state.clone())), 1, false).0.expect("room");
    }
    assert!(ledger.take(group(2, 1), 1, Arc::new(One(3, state.clone())), 1, true).0.is_err());
    state.set(Some(1));
    let (taken, others) = ledger.take(group(2, 1), 1, Arc::new(One(4, state)), 2, true);
    assert_eq!((taken.is_ok(), others.len()), (true, 1));
}

/// Goal: holders that do not leave keep newcomers out once the leeway is used up. Their amount is free when they have
/// left.
#[test]
fn a_holder_that_gives_way_counts_until_it_leaves() {
    let mut ledger = Ledger::new(6, 2);
    let idle = Rc::new(Cell::new(Some(1)));
    let keys: Vec<usize> = (0..6)
        .map(|n| ledger.take(group(1, 1), 1, Arc::new(One(n, idle.clone())), 5, false).0.expect("room"))
        .collect();
    let busy = || one(9, None);
    for workload in 2..5 {
        assert_eq!(ledger.take(group(workload, 1), 1, busy(), 5, false).1.len(), 1);
    }
    let full = ledger.take(group(5, 1), 1, busy(), 5, false).0.expect_err("three have not left");
    assert_eq!((full.is_beyond, ledger.held(), ledger.holders()), (true, 9, 9));
    ledger.leave(keys[0]);
    assert!(ledger.take(group(5, 1), 1, busy(), 5, false).0.is_ok());
    keys[1..].iter().for_each(|key| ledger.leave(*key));
    assert_eq!(ledger.held(), 4);
}

#[test]
fn a_regrouped_holder_counts_toward_its_new_workload() {
    let mut ledger = Ledger::new(4, 4);
    let key = ledger.take(group(0, 1), 3, one(0, None), 1, false).0.expect("room");
    ledger.regroup(key, 7);
    assert_eq!((ledger.of_workload(0), ledger.of_workload(7), ledger.held()), (0, 3, 3));
    ledger.shrink(key, 2);
    ledger.regroup_all(|_| 8);
    assert_eq!((ledger.of_workload(7), ledger.of_workload(8), ledger.held()), (0, 1, 1));
}

/// Goal: a burst of newcomers makes room for several of them at once if only idle holders give way.
#[test]
fn idle_holders_give_way_in_batches() {
    let mut ledger = Ledger::new(640, 640);
    for n in 0..640 {
        ledger.take(group(1, 1), 1, one(n, (n % 2 == 0).then_some(n)), 1, false).0.expect("room");
    }
    let (taken, others) = ledger.take(group(2, 1), 1, one(0, None), 1, false);
    assert!(taken.is_ok());
    let expected: Vec<u32> = (0..11).map(|n| 2 * n).collect();
    assert_eq!(numbers(&others), expected);
}

proptest! {
    /// Goal: after any sequence of arrivals and departures, the sums match the holders' amounts and the staying holders
    /// have no more than the limit. A newcomer is refused without displacing a holder only if its workload holds most.
    #[test]
    fn no_holder_gives_way_to_a_larger_one(
        limit in 1_u64..200,
        steps in prop::collection::vec((0_u64..4, 0_u8..4, 1_u64..20, any::<bool>(), 0_u8..4), 1..300),
    ) {
        let mut ledger = Ledger::new(limit, limit);
        let mut keys: Vec<usize> = Vec::new();
        for (number, (workload, host, amount, is_idle, what)) in (0..).zip(steps) {
            if what == 0 && !keys.is_empty() {
                ledger.leave(keys.swap_remove(usize::from(host) % keys.len()));
                continue;
            }
            let whose = group(workload, host);
            let before: Vec<(u64, u64)> = (0..4).map(|w| (w, ledger.of_workload(w))).collect();
            let mine = ledger.of_workload(workload) + amount;
            let is_over = ledger.used + amount > limit;
            let is_beyond = ledger.leaving > limit || amount > limit;
            let (taken, others) = ledger.take(whose, amount, one(number, is_idle.then_some(number)), number, false);
            prop_assert!(ledger.used <= limit);
            match taken {
                Ok(key) => {
                    keys.push(key);
                    prop_assert!(is_over || others.is_empty());
                }
                Err(_) if is_beyond => {}
                Err(_) => {
                    prop_assert!(is_over);
                    let most = before.iter().map(|(w, sum)| if *w == workload { mine } else { *sum }).max();
                    prop_assert!(!others.is_empty() || most == Some(mine), "{before:?}, {mine}");
                }
            }
            let sum: u64 = ledger.entries.iter().map(|(_, entry)| entry.amount).sum();
            prop_assert_eq!(sum, ledger.held());
            let of_workloads: u64 = ledger.workloads.values().map(|workload| workload.sum).sum();
            prop_assert_eq!(of_workloads, ledger.used);
            let of_addresses: u64 = ledger.workloads.values().flat_map(|w| w.addresses.values()).map(|part| part.sum).sum();
            prop_assert_eq!(of_addresses, ledger.used);
        }
    }
}
