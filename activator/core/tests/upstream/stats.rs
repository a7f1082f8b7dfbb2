//! Rows about reports to the autoscaler: those of Knative's activator, and the equivalent ones of its queue-proxy.

use activator_core::accounting::{Entered, InFlight, RevisionStats, Signal};
use common::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Plays events such as `in 0 r1, tick 1` (milliseconds) and returns everything that is emitted, by revision.
fn play(events: &str) -> Vec<(String, f64, f64)> {
    let clock = Arc::new(AtomicI64::new(0));
    let mut revisions: BTreeMap<String, (Arc<RevisionStats>, Vec<InFlight>)> = BTreeMap::new();
    let mut emitted = Vec::new();
    for event in events.split(", ") {
        let mut words = event.split(' ');
        let (kind, at) = (words.next().expect("a word"), words.next().expect("a time"));
        let name = words.next().unwrap_or("r1").to_owned();
        clock.store((at.parse::<f64>().expect("milliseconds") * 1e6) as i64, Ordering::SeqCst);
        let (stats, in_flight) = revisions.entry(name.clone()).or_insert_with(|| {
            let clock = clock.clone();
            (RevisionStats::new(Arc::new(move || Timestamp::from_nanos(clock.load(Ordering::SeqCst)))), Vec::new())
        });
        match kind {
            "in" => {
                let Entered { in_flight: entered, first } = stats.enter();
                in_flight.push(entered);
                if first {
                    stats.signal().expect("due").confirm();
                    emitted.push((name, 1.0, 1.0));
                }
            }
            "out" => drop(in_flight.pop()),
            _ => {
                for (name, (stats, _)) in &revisions {
                    if let Some(report) = stats.report() {
                        report.signal.into_iter().for_each(Signal::confirm);
                        emitted.push((name.clone(), report.average_concurrency, report.request_count));
                    }
                }
            }
        }
    }
    emitted
}

#[test]
fn reports_are_upstreams() {
    type Row<'a> = (&'a str, &'a [(&'a str, f64, f64)]);
    let rows: [Row<'_>; 14] = [
        ("in 0 r1, in 0 r2", &[("r1", 1.0, 1.0), ("r2", 1.0, 1.0)]),
        ("in 0, out 1, in 1, out 2, tick 2", &[("r1", 1.0, 1.0), ("r1", 0.0, 1.0)]),
        ("in 0, in 0, tick 1, tick 2", &[("r1", 1.0, 1.0), ("r1", 1.0, 1.0), ("r1", 2.0, 0.0)]),
        (
            "in 0, out 1, tick 1, tick 2, in 3",
            &[("r1", 1.0, 1.0), ("r1", 0.0, 0.0), ("r1", 0.0, 0.0), ("r1", 1.0, 1.0)],
        ),
        ("in 0, out 1, tick 1, tick 2, tick 3", &[("r1", 1.0, 1.0), ("r1", 0.0, 0.0), ("r1", 0.0, 0.0)]),
        ("in 0, tick 0", &[("r1", 1.0, 1.0), ("r1", 0.0, 0.0)]),
        // Knative's count of -1 (a tick between two steps of the first request) is impossible here.
        (
            "in 0, tick 1000, out 2000, tick 2000, in 2500, out 3000, tick 3000",
            &[("r1", 1.0, 1.0), ("r1", 0.0, 0.0), ("r1", 1.0, 0.0), ("r1", 0.5, 1.0)],
        ),
        (
            "in 0 r1, in 0 r2, in 0 r3, tick 0",
            &[
                ("r1", 1.0, 1.0),
                ("r2", 1.0, 1.0),
                ("r3", 1.0, 1.0),
                ("r1", 0.0, 0.0),
                ("r2", 0.0, 0.0),
                ("r3", 0.0, 0.0),
            ],
        ),
        ("in 0, in 0, out 1, out 2, tick 2", &[("r1", 1.0, 1.0), ("r1", 0.5, 1.0)]),
        ("in 0, in 0, out 1, out 2, tick 0", &[("r1", 1.0, 1.0), ("r1", 0.5, 1.0)]),
        ("in 0, in 0, in 0, tick 0.000001", &[("r1", 1.0, 1.0), ("r1", 2.0, 2.0)]),
        // The gauge has the discounted average: 3, then 4.
        ("in 0, in 0, in 0, in 0, tick 1, tick 2", &[("r1", 1.0, 1.0), ("r1", 3.0, 3.0), ("r1", 4.0, 0.0)]),
        ("in 0, out 0, in 0, out 0, in 0, out 0, tick 1", &[("r1", 1.0, 1.0), ("r1", 0.0, 2.0)]),
        // Two requests of 500 ms in one window of 1 s that is not the first window.
        (
            "in 0, tick 1000, out 1000, in 1000, out 1500, in 1500, out 2000, tick 2000",
            &[("r1", 1.0, 1.0), ("r1", 0.0, 0.0), ("r1", 1.0, 2.0)],
        ),
    ];
    for (events, expected) in rows {
        let expected: Vec<_> =
            expected.iter().map(|(name, average, count)| ((*name).to_owned(), *average, *count)).collect();
        assert_eq!(play(events), expected, "{events}");
    }
}
