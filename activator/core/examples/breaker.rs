//! What a place in the breaker costs: `cargo run --release -p activator-core --example breaker`.
//!
//! Taking and giving back, on one thread and on two that share one breaker; and the same through a throttler, pod
//! included. Prints nanoseconds for each pair, the best of several rounds: what the code costs, not what the machine was
//! doing besides.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::black_box;
use std::pin::Pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// Wall time of one pair on each thread, in nanoseconds.
fn measure(threads: u32, pair: &(impl Fn() + Sync)) -> f64 {
    let round = || {
        let barrier = Barrier::new(threads as usize);
        let run = || {
            barrier.wait();
            let start = Instant::now();
            (0..PAIRS).for_each(|_| pair());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(PAIRS)
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).fold(0.0, f64::max)
        })
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}
