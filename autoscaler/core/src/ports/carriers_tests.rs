//! Tests of number and selection in tables, and of invariants over histories of activators that are added, removed and
//! proven late.

use super::carriers::{count, endpoints_among};
use super::slices::{Endpoints, Port};
use super::tests::epoch;
use super::*;
use common::ports::Listening;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Instant;

const NUMBER: u16 = 100;

fn four(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn six(n: u16) -> IpAddr {
    IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n])
}

fn ready(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Activator> {
    addresses.into_iter().map(|address| Activator { address, serving: Serving::Ready }).collect()
}

fn at(address: IpAddr) -> Listed {
    Listed { address, number: NUMBER, ready: true }
}

fn proven(addresses: impl IntoIterator<Item = IpAddr>, now: Instant) -> Proofs {
    let mut proofs = Proofs::default();
    for address in addresses {
        let listening = Listening { instance: "1".to_owned(), uid: "a".to_owned(), is_held: true };
        proofs.record(address, NUMBER, NumberResponse::Ours(listening), now);
    }
    proofs
}

/// Returns the endpoints of a workload with one port.
fn endpoints_of(
    listed: &[Listed],
    activators: &[Activator],
    need: Option<usize>,
    name: &str,
    (proofs, now): (&Proofs, Instant),
) -> Endpoints {
    let port = Port { uid: "a", number: Some(NUMBER), former: &[], listed };
    let need = need.and_then(NonZeroUsize::new);
    endpoints_among(&[port], activators, need, name, proofs, now).remove(0)
}

fn addresses(listed: &[Listed]) -> BTreeSet<IpAddr> {
    listed.iter().map(|listed| listed.address).collect()
}

#[test]
fn the_number_grows_at_once_and_shrinks_when_half_is_enough() {
    for (need, have, expected) in
        [(1, 0, 2), (3, 0, 3), (3, 2, 3), (3, 3, 3), (3, 4, 4), (3, 5, 5), (3, 6, 3), (1, 3, 3), (1, 4, 2), (5, 20, 5)]
    {
        let need = NonZeroUsize::new(need).expect("some");
        assert_eq!(count(need, have), expected, "{need} needed, {have} listed");
    }
}

/// Goal: a workload has as many activators of each family as it needs, or all if there are no more or no number is
/// given.
#[test]
fn a_workload_has_as_many_of_each_family_as_it_needs() {
    let now = epoch();
    let all = ready((1..=20).map(four).chain((1..=20).map(six)));
    let proofs = proven(all.iter().map(|one| one.address), now);
    for name in (0..50).map(|n| format!("w{n}")) {
        for (need, expected) in [(Some(1), 2), (Some(3), 3), (Some(20), 20), (Some(25), 20), (None, 20)] {
            let found = endpoints_of(&[], &all, need, &name, (&proofs, now)).listed;
            let of = |is_v6: bool| found.iter().filter(|listed| listed.address.is_ipv6() == is_v6).count();
            assert_eq!((of(false), of(true)), (expected, expected), "{name} needs {need:?}");
        }
    }
}

/// Goal: selected activators that do not respond leave no workload unserved. Others replace them, no more than needed,
/// and are removed in one step once the selected ones are proven.
#[test]
fn other_activators_replace_selected_ones_until_these_are_proven() {
    let (now, five) = (epoch(), ready((1..=5).map(four)));
    let all: BTreeSet<IpAddr> = (1..=5).map(four).collect();
    let selected = addresses(&endpoints_of(&[], &five, Some(2), "a", (&proven(all.clone(), now), now)).listed);
    let others: Vec<IpAddr> = all.difference(&selected).copied().collect();
    let [first, second] = <[IpAddr; 2]>::try_from(selected.iter().copied().collect::<Vec<_>>()).expect("two");
    let of = |listed: &[IpAddr], proven_ones: &[IpAddr]| {
        let listed: Vec<_> = listed.iter().copied().map(at).collect();
        addresses(&endpoints_of(&listed, &five, Some(2), "a", (&proven(proven_ones.iter().copied(), now), now)).listed)
    };
    let set = |addresses: &[IpAddr]| addresses.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(of(&[], &others), set(&others[..2]), "no selected one is proven: others, no more than needed");
    assert_eq!(of(&[], &[others[0], first]), set(&[first]), "one selected one is proven: no other is added");
    assert_eq!(of(&[others[0], first], &[]), set(&[others[0], first]), "listed ones stay");
    assert_eq!(of(&[others[0], first], &[second]), selected, "until the other one is proven");
    assert_eq!(of(&[others[0], others[1]], &[second]), set(&[others[0], second]), "one for one");
}

/// Goal: a family without ready activators keeps its former ones, beside a family that is served.
#[test]
fn each_family_keeps_its_own_unready_activators() {
    let now = epoch();
    let is = |address, serving| Activator { address, serving };
    let activators = [is(four(1), Serving::Ready), is(four(2), Serving::Unready), is(six(1), Serving::Unready)];
    let had = [four(1), four(2), six(1)].map(at);
    let found = endpoints_of(&had, &activators, Some(2), "a", (&proven([four(1)], now), now));
    assert_eq!((found.listed.as_slice(), found.unready.as_slice()), (&[at(four(1))][..], &[at(six(1))][..]));
    assert_eq!(found.with_unready(), [at(four(1)), at(six(1))]);
}

/// Goal: the ports of a workload have the same activators, even if one of them has more.
#[test]
fn ports_of_one_workload_are_carried_by_the_same_activators() {
    let (now, five) = (epoch(), ready((1..=5).map(four)));
    let proofs = proven((1..=5).map(four), now);
    let need = NonZeroUsize::new(2);
    let three: Vec<Listed> = endpoints_of(&[], &five, Some(3), "a", (&proofs, now)).listed;
    let port = |listed| Port { uid: "a", number: Some(NUMBER), former: &[], listed };
    let found = endpoints_among(&[port(&three), port(&[])], &five, need, "a", &proofs, now);
    assert_eq!((&found[0].listed, &found[1].listed), (&three, &three));
}

/// Goal: the removal and return of one of twenty activators changes only the workloads that it carries.
#[test]
fn removing_an_activator_changes_only_its_own_workloads() {
    let (now, twenty) = (epoch(), ready((1..=20).map(four)));
    let proofs = proven((1..=20).map(four), now);
    let nineteen = &twenty[1..];
    let mut touched = 0;
    for name in (0..2000).map(|n| format!("w{n}")) {
        let before = addresses(&endpoints_of(&[], &twenty, Some(3), &name, (&proofs, now)).listed);
        let after = addresses(&endpoints_of(&[], nineteen, Some(3), &name, (&proofs, now)).listed);
        let gone = twenty[0].address;
        assert_eq!(before.contains(&gone), before != after, "{name}: {before:?}, {after:?}");
        assert!(before.iter().all(|address| *address == gone || after.contains(address)), "{name}");
        touched += usize::from(before != after);
    }
    assert!((240..=360).contains(&touched), "three in twenty of 2000: {touched}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The activator gets this state, or is removed.
    Is(u8, Option<Serving>),
    /// The activator responds to probes.
    Responds(u8),
    Silent(u8),
    Need(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let serving = prop_oneof![
        4 => Just(Some(Serving::Ready)),
        1 => Just(Some(Serving::Terminating)),
        1 => Just(Some(Serving::Unready)),
        1 => Just(Some(Serving::Stopped)),
        1 => Just(None),
    ];
    let step = prop_oneof![
        3 => (1_u8..=6, serving).prop_map(|(n, serving)| Step::Is(n, serving)),
        3 => (1_u8..=6).prop_map(Step::Responds),
        1 => (1_u8..=6).prop_map(Step::Silent),
        1 => (1_usize..=6).prop_map(Step::Need),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Goal: during a change no activator is added without a proof, and no workload has fewer ready activators than it
    /// had and needs. At rest it has exactly as many as it needs.
    #[test]
    fn a_workload_never_has_fewer_than_it_had_and_needs(steps in steps()) {
        let now = epoch();
        let (mut serving, mut responding, mut need) = ([None; 7], BTreeSet::new(), 2);
        let mut listed: Vec<Listed> = Vec::new();
        for step in steps {
            match step {
                Step::Is(n, is) => {
                    serving[usize::from(n)] = is;
                    if is != Some(Serving::Ready) {
                        responding.remove(&four(n));
                    }
                }
                Step::Responds(n) if serving[usize::from(n)] == Some(Serving::Ready) => _ = responding.insert(four(n)),
                Step::Responds(_) => {}
                Step::Silent(n) => _ = responding.remove(&four(n)),
                Step::Need(n) => need = n,
            }
            let of = |n: u8| Some(Activator { address: four(n), serving: serving[usize::from(n)]? });
            let activators: Vec<Activator> = (1..=6).filter_map(of).collect();
            let ready_ones: BTreeSet<IpAddr> =
                activators.iter().filter(|one| one.serving == Serving::Ready).map(|one| one.address).collect();
            let proofs = proven(responding.iter().copied(), now);
            let found = endpoints_of(&listed, &activators, Some(need), "a", (&proofs, now)).with_unready();
            let listed_ready = |listed: &[Listed]| {
                listed.iter().filter(|at| at.ready && ready_ones.contains(&at.address)).count()
            };
            let added = |at: &&Listed| at.ready && !listed.contains(at);
            prop_assert!(found.iter().filter(added).all(|at| responding.contains(&at.address)), "{found:?}");
            let least = listed_ready(&listed).min(need.max(2)).min(ready_ones.len());
            prop_assert!(listed_ready(&found) >= least, "{listed:?} to {found:?} of {ready_ones:?}, {need} needed");
            listed = found;
            let all = proven(ready_ones.iter().copied(), now);
            let mut rest = listed.clone();
            for _ in 0..2 {
                rest = endpoints_of(&rest, &activators, Some(need), "a", (&all, now)).listed;
            }
            let enough = count(NonZeroUsize::new(need).expect("some"), listed_ready(&listed)).min(ready_ones.len());
            prop_assert_eq!(listed_ready(&rest), enough, "at rest");
        }
    }
}
