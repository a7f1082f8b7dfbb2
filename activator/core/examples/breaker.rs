//! What a place in the breaker costs: `cargo run --release -p activator-core --example breaker`.
//!
//! Taking and giving back, on one thread and on two that share one breaker; and the same through a throttler, pod
//! included. Prints nanoseconds for each pair, the best of several rounds: what the code costs, not what the machine was
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use activator_core::breaker::{Breaker, Capacity};
use activator_core::throttler::{ContainerConcurrency, Throttler};
use activator_core::{Destination, Destinations};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Short rounds, so that some run undisturbed on a busy machine.
const PAIRS: u32 = 20_000;
const ROUNDS: u32 = 500;

fn main() {
    let word = AtomicU64::new(0);
    let atomics = || {
        word.fetch_add(1, Ordering::AcqRel);
        word.fetch_sub(1, Ordering::AcqRel);
    };
    println!(
        "two bare atomics:            {:5.1} ns alone, {:5.1} ns on two cores",
        measure(1, &atomics),
        measure(2, &atomics)
    );
    let breaker = Breaker::new(Capacity::Limited(1000), 10);
    let pair = || drop(black_box(breaker.try_acquire()));
    println!(
        "breaker, take and give back: {:5.1} ns alone, {:5.1} ns on two cores",
        measure(1, &pair),
        measure(2, &pair)
    );
    let wait = || drop(black_box(poll(breaker.acquire())));
    println!(
        "the same as a future:        {:5.1} ns alone, {:5.1} ns on two cores",
        measure(1, &wait),
        measure(2, &wait)
    );
    for (name, concurrency) in [("no limit", 0), ("concurrency 1", 1), ("concurrency 100", 100)] {
        let throttler = Throttler::new(ContainerConcurrency::from_number(concurrency), 10);
        let pods = (1..=4).map(|n| Destination::from(std::net::SocketAddr::from(([10, 0, 0, n], 80)))).collect();
        throttler.update(Destinations::Pods(pods));
        let request = || {
            let mut rng = SmallRng::seed_from_u64(1);
            if let Poll::Ready(Ok(admitted)) = poll(throttler.acquire()) {
                drop(black_box(admitted.pick(&mut rng)));
            }
        };
        let (one, two) = (measure(1, &request), measure(2, &request));
        println!("throttler, 4 pods, {name:16} {one:5.1} ns alone, {two:5.1} ns on two cores");
    }
}

fn poll<F: Future + Unpin>(mut future: F) -> Poll<F::Output> {
    Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Wall time of one pair on each thread, in nanoseconds: the lower quartile of the rounds in which all threads ran at
/// the same time. NaN if the machine was too busy for any.
fn measure(threads: u32, pair: &(impl Fn() + Sync)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS).filter_map(|_| round(threads, pair)).collect();
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 4).copied().unwrap_or(f64::NAN)
}

/// One round, unless the threads ran one after the other.
fn round(threads: u32, pair: &(impl Fn() + Sync)) -> Option<f64> {
    // Spun, not slept on: all threads are on a core when they pass.
    let here = AtomicU32::new(0);
    let run = || {
        here.fetch_add(1, Ordering::AcqRel);
        while here.load(Ordering::Acquire) < threads {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        (0..PAIRS).for_each(|_| pair());
        (start, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    let longest = spans.iter().map(|(start, end)| *end - *start).max()?;
    let together = *spans.iter().map(|(_, end)| end).min()? - *spans.iter().map(|(start, _)| start).max()?;
    (together * 10 >= longest * 9).then(|| longest.as_secs_f64() * 1e9 / f64::from(PAIRS))
}
