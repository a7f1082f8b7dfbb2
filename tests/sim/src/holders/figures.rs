//! Measures waiting times, compared with one ideal queue, and the distribution over pods, without faults.

use super::world::World;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Distribution of arrivals at an activator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal intervals.
    Even,
    /// At random intervals.
    Poisson,
}

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Number of activators.
    pub activators: usize,
    /// Number of pods.
    pub pods: u32,
    /// Concurrency limit of each pod.
    pub limit: u32,
    /// Requests per second at each activator.
    pub rate: f64,
    /// Duration of a request.
    pub work: Duration,
    /// Distribution of arrivals.
    pub arrivals: Arrivals,
    /// Duration of the measurement.
    pub lasts: Duration,
    /// Maximum transit time between two activators.
    pub transit_max: Duration,
}

/// Results of a measurement.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Time from arrival to end, for the requests of each activator.
    pub p99: Vec<Duration>,
    /// Time from arrival to end, for all requests.
    pub p99_all: Duration,
    /// Time from arrival to end of these arrivals in one ideal queue.
    pub p99_ideal: Duration,
    /// Each pod's share of the requests.
    pub shares: Vec<f64>,
    /// Messages about holders per request.
    pub messages: f64,
    /// Relays per request.
    pub relayed: f64,
}

/// Measures one setting.
pub fn figures(seed: u64, setting: &Setting) -> Figures {
    let mut world = World::bare(seed, None, false);
    world.limit = setting.limit;
    world.transit_max = setting.transit_max;
    world.work = setting.work;
    world.gap = Duration::from_secs_f64(1.0 / setting.rate);
    world.even = setting.arrivals == Arrivals::Even;
    // By then all activators have sessions.
    world.arrivals_begin = Duration::from_secs(3);
    world.arrivals_end = world.arrivals_begin + setting.lasts;
    world.fault_free_since = world.arrivals_begin;
    world.populate(setting.activators, setting.pods);
    world.run();
    let waits_at = |index: usize| world.waits.iter().filter(|(at, _)| *at == index).map(|(_, wait)| *wait).collect();
    let served: u64 = world.pods.values().map(|pod| pod.served).sum();
    let per_request = |n: u64| n as f64 / served.max(1) as f64;
    Figures {
        p99: (0..setting.activators).map(|index| p99(waits_at(index)) + setting.work).collect(),
        p99_all: p99(world.waits.iter().map(|(_, wait)| *wait).collect()) + setting.work,
        p99_ideal: p99(ideal(&world.arrivals, setting)) + setting.work,
        shares: world.pods.values().map(|pod| per_request(pod.served)).collect(),
        messages: per_request(world.summary.messages),
        relayed: per_request(world.summary.relayed),
    }
}

/// Returns the waiting times in one queue in front of all slots.
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

/// Returns the 99th p99.
fn p99(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    waits.get(waits.len() * 99 / 100).copied().unwrap_or_default()
}
