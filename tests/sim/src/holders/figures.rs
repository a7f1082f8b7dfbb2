//! How long requests wait and how pods share the load where nothing goes wrong, beside one queue that knows everything.

use super::world::World;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// How requests come to an activator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal distances.
    Even,
    /// At random ones.
    Poisson,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// How many.
    pub activators: usize,
    /// How many.
    pub pods: u32,
    /// Of each pod.
    pub limit: u32,
    /// At each activator, each second.
    pub rate: f64,
    /// How long one runs.
    pub work: Duration,
    /// How they come.
    pub arrivals: Arrivals,
    /// For so long.
    pub lasts: Duration,
    /// The longest way between two activators.
    pub way: Duration,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Figures {
    /// From arrival to end, of each activator's requests.
    pub p99: Vec<Duration>,
    /// Of all.
    pub p99_all: Duration,
    /// The same arrivals in one queue before all slots.
    pub p99_ideal: Duration,
    /// Each pod's part of the requests.
    pub shares: Vec<f64>,
    /// Messages about who holds what, for each request.
    pub messages: f64,
    /// How often a request was relayed.
    pub relayed: f64,
}

/// Measures one setting.
pub fn figures(seed: u64, setting: &Setting) -> Figures {
    let mut world = World::bare(seed, None, false);
    world.limit = setting.limit;
    world.way = setting.way;
    world.work = setting.work;
    world.gap = Duration::from_secs_f64(1.0 / setting.rate);
    world.even = setting.arrivals == Arrivals::Even;
    // By then all have found each other.
    world.arrivals_begin = Duration::from_secs(3);
    world.arrivals_end = world.arrivals_begin + setting.lasts;
    world.peace_since = world.arrivals_begin;
    world.populate(setting.activators, setting.pods);
    world.run();
    let of = |index: usize| world.waits.iter().filter(|(at, _)| *at == index).map(|(_, wait)| *wait).collect();
    let served: u64 = world.pods.values().map(|pod| pod.served).sum();
    let part = |n: u64| n as f64 / served.max(1) as f64;
    Figures {
        p99: (0..setting.activators).map(|index| percentile(of(index)) + setting.work).collect(),
        p99_all: percentile(world.waits.iter().map(|(_, wait)| *wait).collect()) + setting.work,
        p99_ideal: percentile(ideal(&world.arrivals, setting)) + setting.work,
        shares: world.pods.values().map(|pod| part(pod.served)).collect(),
        messages: part(world.summary.messages),
        relayed: part(world.summary.relayed),
    }
}

/// Waits in one queue before all slots.
fn ideal(arrivals: &[Duration], setting: &Setting) -> Vec<Duration> {
    let slots = (setting.pods * setting.limit) as usize;
    let mut free: BinaryHeap<Reverse<Duration>> = std::iter::repeat_n(Reverse(Duration::ZERO), slots).collect();
    let wait = |arrival: &Duration| {
        let Reverse(at) = free.pop().unwrap_or_default();
        let begin = at.max(*arrival);
        free.push(Reverse(begin + setting.work));
        begin - *arrival
    };
    arrivals.iter().map(wait).collect()
}

fn percentile(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    waits.get(waits.len() * 99 / 100).copied().unwrap_or_default()
}
