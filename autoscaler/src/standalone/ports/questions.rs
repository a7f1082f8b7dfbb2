//! Queries to activators about their bound port numbers. They are sent to the shared port: one query at a time to each
//! activator, about all numbers that a reconcile waits for.
//!
//! # Frequency
//!
//! The first query is sent at once when a reconcile begins to wait. While the responses bring nothing new, further
//! queries follow after [`PAUSE_FIRST`], twice that, and so on up to [`PAUSE_MAX`]. An activator binds a number some
//! milliseconds after the number enters the ledger.
//!
//! A query names fewer than [`NAMED_MAX`] numbers. If more are pending, further queries follow after [`PAUSE_FIRST`] as
//! long as their count changes, which is some ten thousand numbers a second: far more than the slices that can be written
//! meanwhile.
//!
//! An activator without pending queries is asked for its process identity every ten seconds ([`Proofs::unidentified`]).
//!
//! [`Proofs::unidentified`]: autoscaler_core::ports::Proofs::unidentified

use super::Numbers;
use crate::engine::probe;
use autoscaler_core::ports::Answer;
use bytes::Bytes;
use common::bound_ports::{BoundPort, BoundPorts, NAMED_MAX, QUESTION, Question};
use common::ports::answer::Listening;
use common_runtime::exchange::exchange;
use futures::stream::{FuturesUnordered, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Pause before the second query.
const PAUSE_FIRST: Duration = Duration::from_millis(25);
/// Maximum pause between two queries while no response brings anything new.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Interval between searches for activators whose identity is outdated.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum number of numbers in one query. One slot is reserved for the number of an identity query.
const ASKED_MAX: usize = NAMED_MAX - 1;
/// Maximum duration of one query.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of a response: a uid and an error for each number.
const BODY_LENGTH_MAX: usize = 1 << 20;

/// Query schedule of one activator.
#[derive(Default)]
struct Pace {
    /// Set if a query is in flight.
    is_asked: bool,
    next: Option<Instant>,
    pause: Duration,
    /// Numbers of the last query.
    about: BTreeSet<u16>,
    /// Count of all numbers that were pending then.
    pending: usize,
}

/// Numbers to query at one activator.
struct DueQuery {
    /// Shared port of the activator.
    port: u16,
    numbers: BTreeSet<u16>,
    /// Count of all pending numbers.
    pending: usize,
}

impl Pace {
    /// Begins a query, or returns the time until which it must wait.
    fn begin(&mut self, query: &DueQuery, now: Instant) -> Result<(), Instant> {
        let is_new = match query.pending > ASKED_MAX {
            true => query.pending != self.pending, // The numbers of a query are random ones.
            false => !query.numbers.is_subset(&self.about),
        };
        if let Some(at) = self.next.filter(|at| now < *at && !is_new) {
            return Err(at);
        }
        self.pause = match is_new {
            true => PAUSE_FIRST,
            false => (self.pause * 2).clamp(PAUSE_FIRST, PAUSE_MAX),
        };
        (self.is_asked, self.next) = (true, Some(now + self.pause));
        (self.about, self.pending) = (query.numbers.clone(), query.pending);
        Ok(())
    }
}

/// Sends all pending queries, forever.
///
/// Cancel safe: queries in flight are dropped.
pub(super) async fn ask_for_ever(numbers: &Numbers) {
    let mut under_way = FuturesUnordered::new();
    let mut paces: BTreeMap<IpAddr, Pace> = BTreeMap::new();
    loop {
        let now = Instant::now();
        let mut next = now + LOOK;
        let due = to_ask(numbers, now, |address, count| {
            let pace = paces.entry(address).or_default();
            let later = pace.next.filter(|at| now < *at);
            // A query about so many numbers waits for its turn, whichever they are.
            let is_many = count > ASKED_MAX;
            if let Some(at) = later.filter(|_| is_many && !pace.is_asked) {
                next = next.min(at);
            }
            !pace.is_asked && (later.is_none() || !is_many)
        });
        for (address, query) in due {
            match paces.entry(address).or_default().begin(&query, now) {
                Err(at) => next = next.min(at),
                Ok(()) => under_way.push(async move {
                    (address, now, ask(SocketAddr::new(address, query.port), &query.numbers).await)
                }),
            }
        }
        tokio::select! {
            Some((address, sent, answers)) = under_way.next() => {
                paces.entry(address).or_default().is_asked = false;
                numbers.answered(address, answers, sent);
            }
            () = numbers.asks.notified() => {}
            () = tokio::time::sleep_until(next) => {
                let known = numbers.state.lock().activators();
                paces.retain(|address, pace| pace.is_asked || known.iter().any(|one| one.address == *address));
            }
        }
    }
}

/// Returns the addresses to query now, each with its port and numbers. `may` reports whether a query may be sent to an
/// address for which this count of numbers is pending.
fn to_ask(numbers: &Numbers, now: Instant, mut may: impl FnMut(IpAddr, usize) -> bool) -> BTreeMap<IpAddr, DueQuery> {
    let state = numbers.state.lock();
    let mut found: BTreeMap<IpAddr, DueQuery> = BTreeMap::new();
    for (address, pending, numbers) in state.asks.each() {
        if let Some(port) = state.shared_port(address).filter(|_| may(address, pending)) {
            // If there are too many, start at a random number, so that each gets its turn.
            let skipped = if pending > ASKED_MAX { rand::random_range(0..pending) } else { 0 };
            let numbers: Vec<u16> = numbers.collect();
            let some = numbers.iter().cycle().skip(skipped).take(pending.min(ASKED_MAX));
            found.insert(address, DueQuery { port, numbers: some.copied().collect(), pending });
        }
    }
    for (address, number) in state.proofs.unidentified(now.into_std()) {
        if let Some(port) = state.shared_port(address).filter(|_| may(address, 1)) {
            let none = || DueQuery { port, numbers: BTreeSet::new(), pending: 1 };
            found.entry(address).or_insert_with(none).numbers.insert(number);
        }
    }
    found
}

/// Queries the activator at an address about these numbers. Returns no results if there is no valid response.
async fn ask(at: SocketAddr, numbers: &BTreeSet<u16>) -> Vec<(u16, Answer)> {
    match tokio::time::timeout(TIMEOUT, send(at, numbers)).await {
        Ok(Ok(answer)) => return read(answer, numbers),
        Ok(Err(error)) => tracing::debug!(%at, %error, "failed to query an activator about its port numbers"),
        Err(_) => tracing::debug!(%at, "an activator did not respond in time to a query about its port numbers"),
    }
    Vec::new()
}

fn read(answer: BoundPorts, numbers: &BTreeSet<u16>) -> Vec<(u16, Answer)> {
    let BoundPorts { instance, ports, .. } = answer;
    let rows: BTreeMap<u16, BoundPort> = ports.into_iter().map(|port| (port.number, port)).collect();
    let read = |number: &u16| {
        let answer = match rows.get(number) {
            None => Answer::Refused,
            Some(port) if port.in_use => Answer::Foreign,
            // A number that is being closed reports that until it is closed, served or not.
            Some(port) if port.error.is_some() && !port.closing => Answer::Refused,
            Some(port) => {
                let (instance, uid) = (instance.clone(), port.uid.clone());
                Answer::Ours(Listening { instance, uid, is_held: !port.closing })
            }
        };
        (*number, answer)
    };
    numbers.iter().map(read).collect()
}

/// Sends one query.
async fn send(at: SocketAddr, numbers: &BTreeSet<u16>) -> anyhow::Result<BoundPorts> {
    let stream = TcpStream::connect(at).await?;
    let request = Request::get("/")
        .header(http::header::HOST, at.to_string())
        .header(http::header::USER_AGENT, probe::USER_AGENT)
        .header(http::header::CONNECTION, "close")
        .header(probe::PROBE_HEADER, probe::ACTIVATOR)
        .header(QUESTION, Question::Numbers(numbers.iter().copied().collect()).value())
        .body(Empty::<Bytes>::new())?;
    let answer = exchange(stream, request, async |answer| {
        anyhow::ensure!(answer.status().is_success(), "the response has status {}", answer.status());
        let body = Limited::new(answer.into_body(), BODY_LENGTH_MAX).collect().await;
        body.map(|body| body.to_bytes()).map_err(|error| anyhow::anyhow!(error))
    });
    Ok(serde_json::from_slice(&answer.await??)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_row_says_is_an_answer() {
        let text = r#"{"instance":"i","pod":"p","ports":[
            {"number":1,"uid":"u"},{"number":2,"uid":"u","inUse":true,"error":"in use"},
            {"number":3,"uid":"u","error":"the workload of the port is not known to this activator"},
            {"number":4,"uid":"u","closing":true,"error":"the workload of the port is not known to this activator"}]}"#;
        let answer: BoundPorts = serde_json::from_str(text).expect("an answer");
        let ours = |is_held| Answer::Ours(Listening { instance: "i".into(), uid: "u".into(), is_held });
        let expected =
            [(1, ours(true)), (2, Answer::Foreign), (3, Answer::Refused), (4, ours(false)), (5, Answer::Refused)];
        assert_eq!(read(answer, &(1..=5).collect()), expected);
    }

    /// Goal: queries without news become rarer, also if one query cannot name all pending numbers.
    #[test]
    fn queries_without_news_become_rarer() {
        let mut now = Instant::now();
        for many in [3, 4 * ASKED_MAX] {
            let query = |pending: usize| DueQuery { port: 1, numbers: (0..3).collect(), pending };
            let mut pace = Pace::default();
            let mut pauses = Vec::new();
            for pending in [many, many, many, many] {
                pace.begin(&query(pending), now).expect("it is due");
                assert_eq!(pace.begin(&query(pending), now), pace.next.map_or(Ok(()), Err));
                pauses.push(pace.pause.as_millis() / PAUSE_FIRST.as_millis());
                now += pace.pause;
            }
            assert_eq!(pauses, [1, 2, 4, 8], "{many}");
            let news = DueQuery { port: 1, numbers: (0..4).collect(), pending: many + 1 };
            assert_eq!((pace.begin(&news, now), pace.pause), (Ok(()), PAUSE_FIRST), "{many}");
        }
    }
}
