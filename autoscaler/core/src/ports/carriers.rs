//! Selects the ready activators that carry a workload: as many as its load needs, and a stable selection over time.
//!
//! If the slices of every workload named every activator, the slices of all workloads would be written whenever an
//! activator is added or removed. So each workload gets a few activators, selected by a hash of its name. If each
//! workload needs three of twenty activators, the removal of one activator changes the slices of three workloads in
//! twenty.
//!
//! # The rule, for each address family separately
//!
//! 1. **Number.** As many as needed, at least two ([`count`]). The number grows at once when more are needed. It
//!    shrinks only when half of the activators in the slices are enough, so that frequent changes of the pods do not
//!    rewrite slices each time.
//! 2. **Selection.** The activators that the hash ranks first ([`subset`]). If two lists of activators differ by one,
//!    their selections differ by at most that one.
//! 3. **Never fewer during a change.** A selected activator that is not proven is probed. Until it is proven, another
//!    activator in the slices stays in its place. An activator that has returned is proven first, and takes its place
//!    back in one write.
//! 4. **Never none.** While no selected activator is proven, any proven one takes its place.
//!
//! Activators that are not ready are handled by the table in [`super::slices`]; they do not count here.

use super::Proofs;
use super::slices::{Activator, Endpoints, Listed, Port, Serving, endpoints};
use common::ownership::subset;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Instant;

/// Minimum number of activators of a workload, if there are that many: one of them may end without a warning.
const COUNT_MIN: usize = 2;

/// Returns the endpoints for the ports of a workload, in their order. `need` is the number of activators for its load;
/// with `None`, all activators carry it. `target` is its name, which is hashed.
pub fn endpoints_among(
    ports: &[Port<'_>],
    activators: &[Activator],
    need: Option<NonZeroUsize>,
    target: &str,
    proofs: &Proofs,
    now: Instant,
) -> Vec<Endpoints> {
    let mut all: Vec<Endpoints> = ports.iter().map(|_| Endpoints::default()).collect();
    for is_v6 in [false, true] {
        let family: Vec<Activator> =
            activators.iter().filter(|activator| activator.address.is_ipv6() == is_v6).copied().collect();
        let selected = select(&family, need, target, ready_in_slices(ports, &family));
        for (port, all) in ports.iter().zip(&mut all) {
            let is_listed = |address: IpAddr| port.listed.iter().any(|listed| listed.address == address);
            let concerned = |one: &&Activator| {
                selected.contains(&one.address) || one.serving != Serving::Ready || is_listed(one.address)
            };
            let some: Vec<Activator> = family.iter().filter(concerned).copied().collect();
            let mut found = endpoints(port, &some, proofs, now);
            if some.len() < family.len() && !found.listed.iter().any(|listed| listed.ready) {
                found = endpoints(port, &family, proofs, now);
            }
            keep(&mut found.listed, &selected);
            all.listed.extend(found.listed);
            all.unready.extend(found.unready);
            all.to_probe.extend(found.to_probe);
        }
    }
    all
}

/// Returns the number of activators for a workload that needs `need`, and whose slices have `have` ready ones.
pub fn count(need: NonZeroUsize, have: usize) -> usize {
    let need = need.get().max(COUNT_MIN);
    if need < have && have < need.saturating_mul(2) { have } else { need }
}

/// Returns the activators selected for a workload.
fn select(family: &[Activator], need: Option<NonZeroUsize>, target: &str, have: usize) -> BTreeSet<IpAddr> {
    let ready: Vec<IpAddr> = family.iter().filter(|one| one.serving == Serving::Ready).map(|one| one.address).collect();
    let Some(count) = need.map(|need| count(need, have)).filter(|count| *count < ready.len()) else {
        return ready.into_iter().collect();
    };
    let names: Vec<String> = ready.iter().map(IpAddr::to_string).collect();
    let chosen: BTreeSet<&str> = subset(&names, count, target).into_iter().collect();
    let is_chosen = |(_, name): &(&IpAddr, &String)| chosen.contains(name.as_str());
    ready.iter().zip(&names).filter(is_chosen).map(|(address, _)| *address).collect()
}

/// Returns the number of ready activators in the slices of the port that has most, since all ports of a workload share
/// their activators.
fn ready_in_slices(ports: &[Port<'_>], family: &[Activator]) -> usize {
    let is_ready = |address: IpAddr| family.iter().any(|one| one.address == address && one.serving == Serving::Ready);
    let count = |port: &Port<'_>| {
        let ready = port.listed.iter().filter(|listed| listed.ready && is_ready(listed.address));
        ready.map(|listed| listed.address).collect::<BTreeSet<_>>().len()
    };
    ports.iter().map(count).max().unwrap_or(0)
}

/// Keeps the selected activators among the ready ones, and others only in place of missing selected ones.
fn keep(listed: &mut Vec<Listed>, selected: &BTreeSet<IpAddr>) {
    let present = listed.iter().filter(|listed| selected.contains(&listed.address)).count();
    let mut spare = selected.len().saturating_sub(present);
    listed.retain(|listed| {
        let stays = !listed.ready || selected.contains(&listed.address) || spare > 0;
        if stays && !selected.contains(&listed.address) {
            spare = spare.saturating_sub(1);
        }
        stays
    });
}
