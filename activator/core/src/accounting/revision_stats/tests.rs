//! Tests of the reports of a revision, event by event, with a clock that the test sets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use super::*;

/// Revision with its clock in milliseconds and its requests in flight.
struct Revision {
    clock: Arc<AtomicI64>,
    stats: Arc<RevisionStats>,
    in_flight: Vec<InFlight>,
}

impl Revision {
    fn new() -> Self {
        let clock = Arc::new(AtomicI64::new(0));
        let read = Arc::clone(&clock);
        let stats = RevisionStats::new(Arc::new(move || Timestamp::from_nanos(read.load(Ordering::SeqCst))));
        Self { clock, stats, in_flight: Vec::new() }
    }

    fn at(&self, ms: f64) {
        self.clock.store((ms * 1e6) as i64, Ordering::SeqCst);
    }

    fn enter(&mut self) -> bool {
        let Entered { in_flight, first } = self.stats.enter();
        self.in_flight.push(in_flight);
        first
    }

    fn leave(&mut self) {
        self.in_flight.pop();
    }

    /// Returns a report as (average, count) and confirms its signal.
    fn report(&self) -> Option<(f64, f64)> {
        let report = self.stats.report()?;
        report.signal.into_iter().for_each(Signal::confirm);
        Some((report.average_concurrency, report.request_count))
    }
}

#[test]
fn only_the_first_request_makes_a_signal_due() {
    let mut revision = Revision::new();
    assert!(revision.report().is_none() && revision.stats.signal().is_none() && !revision.stats.is_tracked(), "idle");
    assert_eq!([revision.enter(), revision.enter()], [true, false]);
    let signal = revision.stats.signal().expect("due");
    assert!(revision.stats.signal().is_none(), "in delivery");
    signal.confirm();
    assert!(revision.stats.signal().is_none(), "delivered");
}

/// Goal: a signal lost with a broken connection is sent again, and is counted once in the end.
#[test]
fn an_unconfirmed_signal_is_due_again() {
    let mut revision = Revision::new();
    revision.enter();
    drop(revision.stats.signal().expect("due"));
    let again = revision.stats.signal().expect("due again");
    again.confirm();
    revision.at(1000.0);
    assert_eq!(revision.report(), Some((0.0, 0.0)), "discounted once");
}

/// Goal: with no connection in the first second, the report contains the full counts and carries the signal itself.
#[test]
fn a_report_carries_a_due_signal_without_discount() {
    let mut revision = Revision::new();
    revision.enter();
    revision.at(1000.0);
    let report = revision.stats.report().expect("tracked");
    assert_eq!((report.average_concurrency, report.request_count), (1.0, 1.0));
    drop(report); // The report was not written either.
    let signal = revision.stats.signal().expect("still due");
    signal.confirm();
    revision.at(2000.0);
    assert_eq!(revision.report(), Some((1.0, 0.0)), "the window of the arrival is over: no discount");
}

/// Goal: a signal of an earlier tracked period does not affect the signal of the current one, whether the earlier one
/// was delivered or not, and whether the current one is due or in delivery.
#[test]
fn a_signal_of_an_earlier_period_does_not_affect_the_current_one() {
    for (delivered, in_delivery) in [(true, false), (true, true), (false, true)] {
        let mut revision = Revision::new();
        revision.enter();
        let earlier = revision.stats.signal().expect("due");
        revision.leave();
        revision.at(1000.0);
        assert!(revision.report().is_some() && !revision.stats.is_tracked());
        revision.enter();
        let current = in_delivery.then(|| revision.stats.signal().expect("due"));
        if delivered {
            earlier.confirm()
        } else {
            drop(earlier)
        }
        assert_eq!(revision.stats.signal().is_none(), in_delivery, "the state of the current one");
        drop(current);
        assert!(revision.stats.signal().is_some(), "not delivered, so it is due");
    }
}

#[test]
fn a_revision_with_a_request_in_flight_is_never_forgotten() {
    let mut revision = Revision::new();
    revision.enter();
    assert!(revision.report().is_some() && revision.stats.is_tracked(), "average 0: no time has passed");
    assert_eq!(revision.stats.concurrency(), 1);
    revision.leave();
    revision.at(1.0);
    revision.report();
    assert!(!revision.stats.is_tracked() && revision.stats.concurrency() == 0);
}

#[test]
fn parallel_requests_are_all_counted() {
    let revision = Revision::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| drop(revision.stats.enter())));
        }
    });
    let report = revision.stats.report().expect("tracked");
    assert_eq!((report.request_count, revision.stats.concurrency()), (4000.0, 0));
}

#[test]
fn a_reminder_is_sent_once_per_report_and_discounted() {
    let mut revision = Revision::new();
    assert!(revision.stats.reminder().is_none(), "nothing is in flight");
    revision.enter();
    assert!(revision.stats.reminder().is_none(), "the first signal is due");
    revision.stats.signal().expect("due").confirm();
    assert!(revision.stats.reminder().is_none(), "the signal has reported it");
    revision.at(1000.0);
    assert_eq!(revision.report(), Some((0.0, 0.0)));
    revision.stats.reminder().expect("a report has passed").confirm();
    assert!(revision.stats.reminder().is_none());
    revision.at(2000.0);
    assert_eq!(revision.report(), Some((0.0, 0.0)), "the reminder has reported it");
    drop(revision.stats.reminder().expect("a report has passed"));
    assert!(revision.stats.signal().is_some(), "a lost reminder makes the signal due");
}

/// Plays events such as `in 0 r1, tick 1` (milliseconds). Returns everything that is emitted, each as revision, average
/// concurrency and count.
fn play(events: &str) -> String {
    let mut revisions: BTreeMap<&str, Revision> = BTreeMap::new();
    let mut emitted = Vec::new();
    for event in events.split(", ") {
        let words: Vec<&str> = event.split(' ').collect();
        let (kind, name) = (words[0], words.get(2).copied().unwrap_or("r1"));
        let at: f64 = words[1].parse().expect("milliseconds");
        let revision = revisions.entry(name).or_insert_with(Revision::new);
        revision.at(at);
        match kind {
            "in" if revision.enter() => {
                revision.stats.signal().expect("due").confirm();
                emitted.push(format!("{name} 1 1"));
            }
            "in" => {}
            "out" => revision.leave(),
            _ => {
                for (name, revision) in &revisions {
                    revision.at(at);
                    emitted.extend(revision.report().map(|(average, count)| format!("{name} {average} {count}")));
                }
            }
        }
    }
    emitted.join(", ")
}

/// Goal: reports equal those of Knative. Rows: its own tests of the activator's reports, and the equivalent ones of its
/// queue-proxy.
#[test]
fn reports_are_upstreams() {
    let rows: [(&str, &str); 14] = [
        ("in 0 r1, in 0 r2", "r1 1 1, r2 1 1"),
        ("in 0, out 1, in 1, out 2, tick 2", "r1 1 1, r1 0 1"),
        ("in 0, in 0, tick 1, tick 2", "r1 1 1, r1 1 1, r1 2 0"),
        ("in 0, out 1, tick 1, tick 2, in 3", "r1 1 1, r1 0 0, r1 0 0, r1 1 1"),
        ("in 0, out 1, tick 1, tick 2, tick 3", "r1 1 1, r1 0 0, r1 0 0"),
        ("in 0, tick 0", "r1 1 1, r1 0 0"),
        // Knative's count of -1 (a tick between two steps of the first request) is impossible here.
        ("in 0, tick 1000, out 2000, tick 2000, in 2500, out 3000, tick 3000", "r1 1 1, r1 0 0, r1 1 0, r1 0.5 1"),
        ("in 0 r1, in 0 r2, in 0 r3, tick 0", "r1 1 1, r2 1 1, r3 1 1, r1 0 0, r2 0 0, r3 0 0"),
        ("in 0, in 0, out 1, out 2, tick 2", "r1 1 1, r1 0.5 1"),
        ("in 0, in 0, out 1, out 2, tick 0", "r1 1 1, r1 0.5 1"),
        ("in 0, in 0, in 0, tick 0.000001", "r1 1 1, r1 2 2"),
        // The gauge has the discounted average: 3, then 4.
        ("in 0, in 0, in 0, in 0, tick 1, tick 2", "r1 1 1, r1 3 3, r1 4 0"),
        ("in 0, out 0, in 0, out 0, in 0, out 0, tick 1", "r1 1 1, r1 0 2"),
        // Two requests of 500 ms in one window of 1 s that is not the first window.
        ("in 0, tick 1000, out 1000, in 1000, out 1500, in 1500, out 2000, tick 2000", "r1 1 1, r1 0 0, r1 1 2"),
    ];
    for (events, expected) in rows {
        assert_eq!(play(events), expected, "{events}");
    }
}
