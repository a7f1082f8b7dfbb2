//! Queries to activators about their bound port numbers. They are sent to the shared port: one query at a time to each
//! activator, about all numbers that a reconcile waits for.
//!
//! # Frequency
//!
//! The first query is sent at once when a reconcile begins to wait. While the responses bring nothing new, further
//! queries follow after [`PAUSE_FIRST`], twice that, and so on up to [`PAUSE_MAX`]. An activator binds a number some
//! milliseconds after the number enters the ledger.
//!
//! A query names fewer than [`NAMED_MAX`] numbers. If more are pending, further queries follow after [`PAUSE_FIRST`],
//! which is some ten thousand numbers a second: far more than the slices that can be written meanwhile.
//!
//! An activator without pending queries is asked for its process identity every ten seconds ([`Proofs::unidentified`]).
//!
//! [`Proofs::unidentified`]: autoscaler_core::ports::Proofs::unidentified

use super::SharedPorts;
use crate::engine::probe;
use autoscaler_core::ports::Answer;
use bytes::Bytes;
use common::bound_ports::{BoundPort, BoundPorts, NAMED_MAX, QUESTION, Question};
use common::ports::answer::Listening;
use futures::stream::{FuturesUnordered, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
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
}

/// Sends all pending queries, forever.
///
/// Cancel safe: queries in flight are dropped.
pub(super) async fn ask_for_ever(shared: &SharedPorts) {
    let mut under_way = FuturesUnordered::new();
    let mut paces: BTreeMap<IpAddr, Pace> = BTreeMap::new();
    loop {
        let now = Instant::now();
        let mut next = now + LOOK;
        let due = to_ask(shared, now, |address, count| {
            let pace = paces.entry(address).or_default();
            let later = pace.next.filter(|at| now < *at);
            // A query about so many numbers waits for its turn, whichever they are.
            let is_many = count > ASKED_MAX;
            if let Some(at) = later.filter(|_| is_many && !pace.is_asked) {
                next = next.min(at);
            }
            !pace.is_asked && (later.is_none() || !is_many)
        });
        for (address, (port, numbers)) in due {
            let pace = paces.entry(address).or_default();
            let is_new = !numbers.is_subset(&pace.about);
            if let Some(at) = pace.next.filter(|at| now < *at && !is_new) {
                next = next.min(at);
                continue;
            }
            pace.pause = match is_new {
                true => PAUSE_FIRST,
                false => (pace.pause * 2).clamp(PAUSE_FIRST, PAUSE_MAX),
            };
            (pace.is_asked, pace.next) = (true, Some(now + pace.pause));
            pace.about.clone_from(&numbers);
            under_way.push(async move { (address, now, ask(SocketAddr::new(address, port), &numbers).await) });
        }
        tokio::select! {
            Some((address, sent, answers)) = under_way.next() => {
                paces.entry(address).or_default().is_asked = false;
                shared.answered(address, answers, sent);
            }
            () = shared.asks.notified() => {}
            () = tokio::time::sleep_until(next) => {
                let known = shared.state.lock().activators();
                paces.retain(|address, pace| pace.is_asked || known.iter().any(|one| one.address == *address));
            }
        }
    }
}

/// Returns the addresses to query now, each with its port and numbers. `may` reports whether a query may be sent to an
/// address for which this count of numbers is pending.
fn to_ask(
    shared: &SharedPorts,
    now: Instant,
    mut may: impl FnMut(IpAddr, usize) -> bool,
) -> BTreeMap<IpAddr, (u16, BTreeSet<u16>)> {
    let state = shared.state.lock();
    let mut found: BTreeMap<IpAddr, (u16, BTreeSet<u16>)> = BTreeMap::new();
    for (address, count, numbers) in state.asks.each() {
        if let Some(port) = state.shared_port(address).filter(|_| may(address, count)) {
            // If there are too many, start at a random number, so that each gets its turn.
            let skipped = if count > ASKED_MAX { rand::random_range(0..count) } else { 0 };
            let numbers: Vec<u16> = numbers.collect();
            let some = numbers.iter().cycle().skip(skipped).take(count.min(ASKED_MAX));
            found.insert(address, (port, some.copied().collect()));
        }
    }
    for (address, number) in state.proofs.unidentified(now.into_std()) {
        if let Some(port) = state.shared_port(address).filter(|_| may(address, 1)) {
            found.entry(address).or_insert((port, BTreeSet::new())).1.insert(number);
        }
    }
    found
}

/// Queries the activator at an address about these numbers. Returns no results if there is no valid response.
async fn ask(at: SocketAddr, numbers: &BTreeSet<u16>) -> Vec<(u16, Answer)> {
    match tokio::time::timeout(TIMEOUT, send(at, numbers)).await {
        Ok(Ok(answer)) => return read(answer, numbers),
        Ok(Err(error)) => tracing::debug!(%at, %error, "an activator could not be asked for its ports"),
        Err(_) => tracing::debug!(%at, "an activator did not say in time which ports it has"),
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
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get("/")
        .header(http::header::HOST, at.to_string())
        .header(http::header::USER_AGENT, probe::USER_AGENT)
        .header(http::header::CONNECTION, "close")
        .header(probe::PROBE_HEADER, probe::ACTIVATOR)
        .header(QUESTION, Question::Numbers(numbers.iter().copied().collect()).value())
        .body(Empty::<Bytes>::new())?;
    let answered = async {
        let answer = sender.send_request(request).await?;
        anyhow::ensure!(answer.status().is_success(), "it answers {}", answer.status());
        let body = Limited::new(answer.into_body(), BODY_LENGTH_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        anyhow::Ok(serde_json::from_slice::<BoundPorts>(&body)?)
    };
    let answer = answered.await;
    connection.abort();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_row_says_is_an_answer() {
        let text = r#"{"instance":"i","pod":"p","ports":[
            {"number":1,"uid":"u"},{"number":2,"uid":"u","inUse":true,"error":"in use"},
            {"number":3,"uid":"u","error":"its workload is not known here"},
            {"number":4,"uid":"u","closing":true,"error":"its workload is not known here"}]}"#;
        let answer: BoundPorts = serde_json::from_str(text).expect("an answer");
        let ours = |is_held| Answer::Ours(Listening { instance: "i".into(), uid: "u".into(), is_held });
        let expected =
            [(1, ours(true)), (2, Answer::Foreign), (3, Answer::Refused), (4, ours(false)), (5, Answer::Refused)];
        assert_eq!(read(answer, &(1..=5).collect()), expected);
    }
}
