//! Port numbers named by EndpointSlices, as far as a slice may claim them for its workload.
//!
//! Tenants can write slices with any label and owner. A number that a slice names is neither released nor given to
//! another workload ([`super::plan()`]). So a slice counts only if it belongs to the workload:
//!
//! | the number | counts if |
//! |---|---|
//! | has a line in the ledger | the line has the namespace of the slice and the uid of its owner |
//! | has no line (lost or never written) | the owner is a known ZeroScaler with that uid, and two limits hold |
//!
//! The limits for numbers without a line: a ZeroScaler has at most [`UNRECORDED_MAX`] of them, or as many as its
//! Service has ports if that is more; and its namespace stays within its quota of the number's range, general or
//! guarded. If there are more numbers, those in the owner's status count first. The ports of a workload that another
//! process owns are not known here.

use super::plan::{Wanted, quota};
use common::RevisionKey;
use common::config::PortRange;
use common::ports::ledger::Ledger;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum of numbers without a line that the slices of one ZeroScaler may name. A Service has few ports.
pub const UNRECORDED_MAX: usize = 16;

/// EndpointSlice that claims to route clients of a ZeroScaler to activators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Namespace of the slice and name of its owner.
    pub key: RevisionKey,
    /// Uid of the owner.
    pub uid: Arc<str>,
    /// Numbers that the slice names.
    pub numbers: BTreeSet<u16>,
}

/// Returns the numbers that count. `guarded` is the range for guarded workloads, which has its own quota. `is_known`
/// returns true if there is a ZeroScaler with this name and uid. `ports` returns its ports, as far as they are known.
pub fn listed<'a, 'b>(
    claims: impl IntoIterator<Item = &'a Claim>,
    ledger: &Ledger,
    range: PortRange,
    guarded: Option<PortRange>,
    is_known: impl Fn(&RevisionKey, &str) -> bool,
    ports: impl Fn(&RevisionKey) -> &'b [Wanted],
) -> BTreeSet<u16> {
    let (mut listed, mut unrecorded) = (BTreeSet::new(), BTreeMap::<&RevisionKey, BTreeSet<u16>>::new());
    for Claim { key, uid, numbers } in claims {
        let is_known = is_known(key, uid);
        for number in numbers {
            match ledger.get(number) {
                Some(line) if line.uid == *uid && line.key.namespace() == key.namespace() => _ = listed.insert(*number),
                None if is_known => _ = unrecorded.entry(key).or_default().insert(*number),
                Some(_) | None => {}
            }
        }
    }
    if unrecorded.is_empty() {
        return listed;
    }
    let range_of = |number: u16| guarded.filter(|guarded| guarded.contains(number)).unwrap_or(range);
    let mut has: BTreeMap<(&str, u16), usize> = BTreeMap::new();
    for (number, line) in ledger {
        *has.entry((line.key.namespace(), range_of(*number).first)).or_default() += 1;
    }
    for (key, numbers) in unrecorded {
        let ports = ports(key);
        let is_in_status = |number: &u16| ports.iter().any(|port| port.in_status == Some(*number));
        let (in_status, others): (Vec<u16>, Vec<u16>) = numbers.into_iter().partition(is_in_status);
        for number in in_status.into_iter().chain(others).take(ports.len().max(UNRECORDED_MAX)) {
            let range = range_of(number);
            let has = has.entry((key.namespace(), range.first)).or_default();
            if *has < quota(range) {
                *has += 1;
                listed.insert(number);
            }
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    use common::ports::ledger::{Entry, PortId};

    const RANGE: PortRange = PortRange { first: 100, last: 199 };

    fn claim(key: (&str, &str), uid: &str, numbers: impl IntoIterator<Item = u16>) -> Claim {
        Claim { key: RevisionKey::new(key.0, key.1), uid: uid.into(), numbers: numbers.into_iter().collect() }
    }

    fn ledger(lines: &[(u16, &str)]) -> Ledger {
        lines.iter().map(|(number, line)| (*number, Entry::parse(line).expect("a line"))).collect()
    }

    /// Goal: a slice counts only for its own workload, whatever owner it claims.
    #[test]
    fn a_number_counts_only_if_ledger_and_owner_agree() {
        let ledger = ledger(&[(100, "held shop/a ua 80 http"), (101, "released:1795000000 shop/a ua 80 http")]);
        let rows: [(&str, Claim, &[u16]); 7] = [
            ("its own", claim(("shop", "a"), "ua", [100, 101]), &[100, 101]),
            ("of a former workload with that name", claim(("shop", "a"), "other", [100]), &[]),
            ("another namespace's, with its uid", claim(("evil", "a"), "ua", [100, 101]), &[]),
            ("another namespace's, with its own", claim(("evil", "b"), "ub", [100]), &[]),
            ("lost, of a known workload", claim(("evil", "b"), "ub", [150]), &[150]),
            ("lost, of an unknown workload", claim(("evil", "c"), "uc", [150]), &[]),
            ("lost, of a former workload with that name", claim(("evil", "b"), "uc", [150]), &[]),
        ];
        let is_known =
            |key: &RevisionKey, uid: &str| matches!((key.as_str(), uid), ("shop/a", "ua") | ("evil/b", "ub"));
        for (case, claim, expected) in rows {
            assert_eq!(
                listed([&claim], &ledger, RANGE, None, is_known, |_| &[]),
                expected.iter().copied().collect(),
                "{case}"
            );
        }
    }

    /// Goal: slices without lines claim a few numbers per workload, and never the whole range for a namespace.
    #[test]
    fn forged_slices_do_not_exhaust_the_range() {
        let one = [claim(("evil", "b"), "u", 100..=199), claim(("evil", "b"), "u", 100..=199)];
        assert_eq!(listed(&one, &Ledger::new(), RANGE, None, |_, _| true, |_| &[]).len(), UNRECORDED_MAX);
        let names: Vec<String> = (0..49).map(|n| format!("b{n}")).collect();
        let mine = ledger(&[(100, "held evil/b0 u 80 http")]);
        let many = names.iter().zip(0_u16..).map(|(name, n)| claim(("evil", name), "u", [101 + 2 * n, 102 + 2 * n]));
        let many: Vec<Claim> = many.collect();
        assert_eq!(listed(&many, &mine, RANGE, None, |_, _| true, |_| &[]).len(), quota(RANGE) - 1);
    }

    /// Goal: if the ledger is lost, a workload with many ports keeps the number of each.
    #[test]
    fn numbers_without_lines_count_as_far_as_the_service_has_ports() {
        let claims = [claim(("shop", "a"), "ua", 100..=139)];
        // Number of ports of the Service, numbers in its status, expected number that count.
        let rows: [(u16, std::ops::Range<u16>, usize); 4] =
            [(20, 120..140, 20), (3, 137..140, UNRECORDED_MAX), (40, 0..0, 40), (0, 0..0, UNRECORDED_MAX)];
        for (count, mut in_status, expected) in rows {
            let of = |port| PortId { name: format!("p{port}"), port };
            let wanted = |port| Wanted { port: of(port), in_slices: None, in_status: in_status.next() };
            let ports: Vec<Wanted> = (1..=count).map(wanted).collect();
            let found = listed(&claims, &Ledger::new(), RANGE, None, |_, _| true, |_| &ports);
            assert_eq!(found.len(), expected, "{count} ports");
            let mut in_status = ports.iter().filter_map(|port| port.in_status);
            assert!(in_status.all(|number| found.contains(&number)), "{count} ports");
        }
    }

    /// Goal: lines of guarded numbers leave room for numbers of the general range, and the other way round.
    #[test]
    fn each_range_has_a_quota_of_its_own() {
        let guarded = PortRange { first: 300, last: 399 };
        let lines: Vec<(u16, &str)> = (0..95).map(|n| (300 + n, "held shop/b ub 80 http")).collect();
        let (full, claim) = (ledger(&lines), claim(("shop", "a"), "ua", [150, 399]));
        for (guarded, expected) in [(Some(guarded), vec![150]), (None, vec![])] {
            let found = listed([&claim], &full, RANGE, guarded, |_, _| true, |_| &[]);
            assert_eq!(found, expected.into_iter().collect(), "{guarded:?}");
        }
        assert_eq!(listed([&claim], &Ledger::new(), RANGE, Some(guarded), |_, _| true, |_| &[]).len(), 2);
    }
}
