//! Which of the ready activators carry a workload: so many as its load needs, and the same ones from day to day.
//!
//! A workload whose slices name every activator is written whenever one of them comes or goes, and so are all others. So
//! each is given a few, by a hash of its name: one activator of twenty that goes touches the slices that name it, three in
//! twenty where three are needed.
//!
//! # The rule, for each address family by itself
//!
//! 1. **How many.** As many as are needed, two at least ([`count`]). More at once, when more are needed; fewer once half
//!    of what the slices have is enough, so that pods that come and go by the dozen do not write slices each time.
//! 2. **Which.** Those that the hash names first ([`subset`]). Of two lists of activators that differ by one, it names the
//!    same but for that one.
//! 3. **Never fewer on the way.** One that is named and not proven is asked. Until then another one that the slices have
//!    stays in its place. Whoever has come back is proven first, and takes its place back in one write.
//! 4. **Never nobody.** While none of those that are named is proven, any that is proven takes their place.
//!
//! Whoever is not ready is left to the table of [`super::slices`]; it is in nobody's count.

use super::Proofs;
use super::slices::{Activator, Endpoints, Listed, Port, Serving, endpoints};
use common::ownership::subset;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Instant;

/// Fewest activators of a workload, where there are so many: one of them may end without a warning.
const LEAST: usize = 2;

/// Where the ports of a workload may lead, in their order. `need`: so many activators can bear its load; none: all are to
/// carry it. `target`: what is hashed, its name.
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
        let named = named(&family, need, target, have(ports, &family));
        for (port, all) in ports.iter().zip(&mut all) {
            let found = of_family(port, &family, &named, proofs, now);
            all.listed.extend(found.listed);
            all.unready.extend(found.unready);
            all.ask.extend(found.ask);
        }
    }
    all
}

/// How many are to carry a workload that needs so many, and whose slices have so many that are ready.
pub fn count(need: NonZeroUsize, have: usize) -> usize {
    let need = need.get().max(LEAST);
    if need < have && have < need.saturating_mul(2) { have } else { need }
}

/// Those that are to carry a workload.
fn named(family: &[Activator], need: Option<NonZeroUsize>, target: &str, have: usize) -> BTreeSet<IpAddr> {
    let ready: Vec<IpAddr> = family.iter().filter(|one| one.serving == Serving::Ready).map(|one| one.address).collect();
    let Some(count) = need.map(|need| count(need, have)).filter(|count| *count < ready.len()) else {
        return ready.into_iter().collect();
    };
    let names: Vec<String> = ready.iter().map(IpAddr::to_string).collect();
    let chosen: BTreeSet<&str> = subset(&names, count, target).into_iter().collect();
    let is_chosen = |(_, name): &(&IpAddr, &String)| chosen.contains(name.as_str());
    ready.iter().zip(&names).filter(is_chosen).map(|(address, _)| *address).collect()
}

/// How many activators that are ready the slices have, of the port that has most: its ports go together.
fn have(ports: &[Port<'_>], family: &[Activator]) -> usize {
    let is_ready = |address: IpAddr| family.iter().any(|one| one.address == address && one.serving == Serving::Ready);
    let of = |port: &Port<'_>| {
        let ready = port.listed.iter().filter(|listed| listed.ready && is_ready(listed.address));
        ready.map(|listed| listed.address).collect::<BTreeSet<_>>().len()
    };
    ports.iter().map(of).max().unwrap_or(0)
}

fn of_family(
    port: &Port<'_>,
    family: &[Activator],
    named: &BTreeSet<IpAddr>,
    proofs: &Proofs,
    now: Instant,
) -> Endpoints {
    let is_listed = |address: IpAddr| port.listed.iter().any(|listed| listed.address == address);
    let concerned =
        |one: &&Activator| named.contains(&one.address) || one.serving != Serving::Ready || is_listed(one.address);
    let some: Vec<Activator> = family.iter().filter(concerned).copied().collect();
    let mut found = endpoints(port, &some, proofs, now);
    if some.len() < family.len() && !found.listed.iter().any(|listed| listed.ready) {
        found = endpoints(port, family, proofs, now);
    }
    keep(&mut found.listed, named);
    found
}

/// Of those that are ready, whoever is named, and others only in place of named ones that are missing.
fn keep(listed: &mut Vec<Listed>, named: &BTreeSet<IpAddr>) {
    let present = listed.iter().filter(|listed| named.contains(&listed.address)).count();
    let mut spare = named.len().saturating_sub(present);
    listed.retain(|listed| {
        let stays = !listed.ready || named.contains(&listed.address) || spare > 0;
        if stays && !named.contains(&listed.address) {
            spare = spare.saturating_sub(1);
        }
        stays
    });
}
