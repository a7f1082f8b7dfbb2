//! Measures waiting times, compared with one ideal queue, and the distribution over pods, without faults.

use super::world::World;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Duration of a request.
const WORK: Duration = Duration::from_micros(50_500);
/// Maximum transit time between two activators.
const TRANSIT_MAX: Duration = Duration::from_micros(400);

/// Parameters of a measurement. Each pod runs one request at a time.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Number of activators.
    pub activators: usize,
    /// Number of pods.
    pub pods: u32,
    /// Requests per second at each activator.
    pub rate: f64,
    /// True if requests arrive at equal intervals, false if at random ones (a Poisson process).
    pub even: bool,
    /// Duration of the measurement.
    pub lasts: Duration,
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
}

/// Measures one setting.
pub fn figures(seed: u64, setting: &Setting) -> Figures {
    let mut world = World::bare(seed, None, false);
    world.transit_max = TRANSIT_MAX;
    world.work = WORK;
    world.gap = Duration::from_secs_f64(1.0 / setting.rate);
    world.even = setting.even;
    // By then all activators have sessions.
    world.arrivals_begin = Duration::from_secs(3);
    world.arrivals_end = world.arrivals_begin + setting.lasts;
    world.fault_free_since = world.arrivals_begin;
    world.populate(setting.activators, setting.pods);
    world.run();
    let waits_at = |index: usize| world.waits.iter().filter(|(at, _)| *at == index).map(|(_, wait)| *wait).collect();
    let served: u64 = world.pods.values().map(|pod| pod.served).sum();
    Figures {
        p99: (0..setting.activators).map(|index| p99(waits_at(index)) + WORK).collect(),
        p99_all: p99(world.waits.iter().map(|(_, wait)| *wait).collect()) + WORK,
        p99_ideal: p99(ideal(&world.arrivals, setting)) + WORK,
        shares: world.pods.values().map(|pod| pod.served as f64 / served.max(1) as f64).collect(),
    }
}

/// Returns the waiting times in one queue in front of all pods.
fn ideal(arrivals: &[Duration], setting: &Setting) -> Vec<Duration> {
    let mut free: BinaryHeap<_> = std::iter::repeat_n(Reverse(Duration::ZERO), setting.pods as usize).collect();
    let wait = |arrival: &Duration| {
        let Reverse(at) = free.pop().unwrap_or_default();
        let begin = at.max(*arrival);
        free.push(Reverse(begin + WORK));
        begin - *arrival
    };
    arrivals.iter().map(wait).collect()
}

/// Returns the 99th percentile.
fn p99(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    waits.get(waits.len() * 99 / 100).copied().unwrap_or_default()
}
