//! Cost of a permit of the breaker: acquire and release, on one thread and on two threads that share one breaker.
//!
//! Rounds are short, so that some run undisturbed on a busy machine. A repetition's figure is the lower quartile of
//! its rounds: the cost of the code, not of the machine's other work. The peer is upstream's breaker ([`upstream`]),
//! measured in turn.
#![allow(clippy::disallowed_methods, reason = "tokio's clock costs more than what is measured")]

mod upstream;

use super::interleaved::ratio;
use crate::report::{Figures, Measurement, Row};
use crate::settings::{Settings, quantile};
use activator_core::breaker::{Breaker, Capacity};
use futures::FutureExt;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

const PAIRS: u32 = 20_000;
const ROUNDS: u32 = 100;

const fn row(name: &'static str, what: &'static str) -> Row {
    Row::at_most(name, what, "", 1.0, 1.0)
}

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        row("breaker-alone", "taking and releasing a permit of the breaker, uncontended ÷ upstream's"),
        row("breaker-two", "the same on two cores"),
    ],
    run: |settings| async { Ok(run(settings)) }.boxed_local(),
};

fn run(settings: &Settings) -> Figures {
    let mut figures = Figures::default();
    let breaker = Breaker::new(Capacity::Limited(1000), 10);
    let pair = || drop(black_box(breaker.try_acquire()));
    let peer = upstream::Breaker::new(1000, 10);
    let peer_pair = || {
        if black_box(peer.reserve()) {
            peer.release();
        }
    };
    for (row, threads) in [("breaker-alone", 1), ("breaker-two", 2)] {
        let turns: Vec<(f64, f64)> = (0..settings.repetitions)
            .map(|_| (measure(threads, &pair), measure(threads, &peer_pair)))
            .filter(|(ours, theirs)| ours.is_finite() && theirs.is_finite())
            .collect();
        let (ours, theirs): (Vec<f64>, Vec<f64>) = turns.into_iter().unzip();
        figures.row(row, ratio(&ours, &theirs));
        figures.add_context(format!("{row}: ours, ns"), ours);
        figures.add_context(format!("{row}: upstream's, ns"), theirs);
    }
    figures
}

/// Returns the wall time of one pair on each thread, in nanoseconds: the lower quartile of the rounds in which all
/// threads ran at the same time. Returns NaN if the machine was too busy for any such round.
fn measure(threads: u32, pair: &(impl Fn() + Sync)) -> f64 {
    let rounds: Vec<f64> = (0..ROUNDS).filter_map(|_| round(threads, pair)).collect();
    quantile(&rounds, 0.25)
}

/// Runs one round. Returns the nanoseconds of one pair, or `None` if the threads did not run at the same time.
fn round(threads: u32, pair: &(impl Fn() + Sync)) -> Option<f64> {
    // The threads wait for each other by spinning, so that each is on a core when the round starts.
    let arrived = AtomicU32::new(0);
    let run = || {
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < threads {
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
