//! Queries to activators about their bound port numbers. They are sent to the shared port: one query at a time to each
//! activator, about all numbers that a reconcile waits for.
//!
//! # Frequency
//!
//! The first query is sent at once when a reconcile begins to wait. While the responses bring nothing new, further
//! queries follow after [`PAUSE_FIRST`], twice that, and so on up to [`PAUSE_MAX`]. An activator binds a number some
//! milliseconds after the number enters the ledger.
//!
//! A query about more than [`NAMED_MAX`] numbers is answered with all numbers, which is a megabyte for ten thousand of
//! them. It is sent at most once per [`PAUSE_MAX`]. An activator answers this query only if it carries the token of a
//! control plane. Without a token, and for [`NAMED_FOR`] after an activator has rejected it, queries name fewer than
//! [`NAMED_MAX`] numbers at a time.
//!
//! An activator without pending queries is asked for its process identity every ten seconds ([`Proofs::unidentified`]).
//!
//! [`Proofs::unidentified`]: autoscaler_core::ports::Proofs::unidentified

use super::Shared;
use crate::engine::probe;
use autoscaler_core::ports::Answer;
use bytes::Bytes;
use common::bound_ports::{BoundPort, BoundPorts, NAMED_MAX, QUESTION, Question};
use common::ports::answer::Listening;
use common_runtime::credential::TokenFile;
use futures::stream::{FuturesUnordered, StreamExt};
use http::{Request, StatusCode};
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
/// Time for which queries name numbers after an activator rejected the query about all.
const NAMED_FOR: Duration = Duration::from_secs(60);
/// Maximum duration of one query.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of a response: all port numbers, with a uid and an error each.
const BODY_LENGTH_MAX: usize = 16 << 20;

/// Statuses that reject the query about all, for now or because the sender is not a control plane.
const REFUSALS: [StatusCode; 4] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];

/// Number of results recorded at once.
const TAKEN_IN: usize = 512;

/// Response of one activator.
#[derive(Debug)]
pub(super) enum Answers {
    /// Result for each queried number.
    Of(Vec<(u16, Answer)>),
    /// The activator rejects the query about all numbers.
    NotAll,
    /// There was no valid response.
    Silent,
}

/// Query schedule of one activator.
#[derive(Default)]
struct Pace {
    /// Set if a query is in flight.
    is_asked: bool,
    next: Option<Instant>,
    pause: Duration,
    /// Numbers of the last query.
    about: BTreeSet<u16>,
    /// Time until which queries about all numbers are not allowed.
    named_until: Option<Instant>,
}

impl Pace {
    /// Returns the maximum number of ports in one query.
    fn most(&self, now: Instant, has_token: bool) -> usize {
        // One slot is reserved for the number of an identity query.
        if has_token && self.named_until.is_none_or(|until| until <= now) { usize::MAX } else { NAMED_MAX - 1 }
    }

    /// Records that the query about all was rejected: a query with named numbers may follow at once.
    fn refused(&mut self, now: Instant) {
        *self = Self { named_until: Some(now + NAMED_FOR), ..Self::default() };
    }
}

/// Sends all pending queries, forever.
///
/// Cancel safe: queries in flight are dropped.
pub(super) async fn ask_for_ever(shared: &Shared) {
    let mut under_way = FuturesUnordered::new();
    let mut paces: BTreeMap<IpAddr, Pace> = BTreeMap::new();
    loop {
        let now = Instant::now();
        let mut next = now + LOOK;
        let due = to_ask(shared, now, |address, count| {
            let pace = paces.entry(address).or_default();
            let (later, most) = (pace.next.filter(|at| now < *at), pace.most(now, shared.token.get().is_some()));
            // A query about so many numbers waits for its turn, whichever they are.
            let is_many = count > most.min(NAMED_MAX);
            if let Some(at) = later.filter(|_| is_many && !pace.is_asked) {
                next = next.min(at);
            }
            (!pace.is_asked && (later.is_none() || !is_many)).then_some(count.min(most))
        });
        for (address, (port, numbers)) in due {
            let pace = paces.entry(address).or_default();
            let is_new = !numbers.is_subset(&pace.about) && numbers.len() <= NAMED_MAX;
            if let Some(at) = pace.next.filter(|at| now < *at && !is_new) {
                next = next.min(at);
                continue;
            }
            pace.pause = match is_new {
                true => PAUSE_FIRST,
                false => (pace.pause * 2).clamp(PAUSE_FIRST, PAUSE_MAX),
            };
            let pause = if numbers.len() > NAMED_MAX { PAUSE_MAX } else { pace.pause };
            (pace.is_asked, pace.next) = (true, Some(now + pause));
            pace.about.clone_from(&numbers);
            let token = shared.token.get();
            under_way.push(async move { (address, now, ask(SocketAddr::new(address, port), &numbers, token).await) });
        }
        tokio::select! {
            Some((address, sent, answers)) = under_way.next() => {
                let pace = paces.entry(address).or_default();
                pace.is_asked = false;
                if matches!(answers, Answers::NotAll) {
                    pace.refused(Instant::now());
                }
                take_in(shared, address, answers, sent).await;
            }
            () = shared.asks.notified() => {}
            () = tokio::time::sleep_until(next) => {
                let known = shared.state.lock().activators();
                paces.retain(|address, pace| pace.is_asked || known.iter().any(|one| one.address == *address));
            }
        }
    }
}

/// Records the response of one activator in small batches, because other tasks wait for the same lock and for this
/// thread.
async fn take_in(shared: &Shared, address: IpAddr, answers: Answers, sent: Instant) {
    let Answers::Of(answers) = answers else { return };
    let mut answers = answers.into_iter().peekable();
    while answers.peek().is_some() {
        shared.answered(address, Answers::Of(answers.by_ref().take(TAKEN_IN).collect()), sent);
        tokio::task::yield_now().await;
    }
}

/// Returns the addresses to query now, each with its port and numbers. `may` returns how many of the given count of
/// numbers may be queried at an address now, or `None` if no query is allowed.
fn to_ask(
    shared: &Shared,
    now: Instant,
    mut may: impl FnMut(IpAddr, usize) -> Option<usize>,
) -> BTreeMap<IpAddr, (u16, BTreeSet<u16>)> {
    let state = shared.state.lock();
    let mut found: BTreeMap<IpAddr, (u16, BTreeSet<u16>)> = BTreeMap::new();
    for (address, count, numbers) in state.asks.each() {
        let Some(port) = state.shared_port(address) else { continue };
        if let Some(most) = may(address, count) {
            // If there are too many, start at a random number, so that each gets its turn.
            let skipped = if count > most { rand::random_range(0..count) } else { 0 };
            let numbers: Vec<u16> = numbers.collect();
            let some = numbers.iter().cycle().skip(skipped).take(most);
            found.insert(address, (port, some.copied().collect()));
        }
    }
    for (address, number) in state.proofs.unidentified(now.into_std()) {
        if let Some(port) = state.shared_port(address).filter(|_| may(address, 1).is_some()) {
            found.entry(address).or_insert((port, BTreeSet::new())).1.insert(number);
        }
    }
    found
}

/// Queries the activator at an address about these numbers.
async fn ask(at: SocketAddr, numbers: &BTreeSet<u16>, token: Option<&TokenFile>) -> Answers {
    let question = match numbers.len() > NAMED_MAX {
        true => Question::All,
        false => Question::Numbers(numbers.iter().copied().collect()),
    };
    match tokio::time::timeout(TIMEOUT, send(at, &question, token)).await {
        Ok(Ok(Some(answer))) => Answers::Of(read(answer, numbers)),
        Ok(Ok(None)) => {
            tracing::debug!(%at, "an activator does not tell about all its ports, and is asked for some at a time");
            Answers::NotAll
        }
        Ok(Err(error)) => {
            tracing::debug!(%at, %error, "an activator could not be asked for its ports");
            Answers::Silent
        }
        Err(_) => {
            tracing::debug!(%at, "an activator did not say in time which ports it has");
            Answers::Silent
        }
    }
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

/// Sends one query. Returns `None` if it was about all numbers and rejected.
async fn send(at: SocketAddr, question: &Question, token: Option<&TokenFile>) -> anyhow::Result<Option<BoundPorts>> {
    let stream = TcpStream::connect(at).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = Request::get("/")
        .header(http::header::HOST, at.to_string())
        .header(http::header::USER_AGENT, probe::USER_AGENT)
        .header(http::header::CONNECTION, "close")
        .header(probe::PROBE_HEADER, probe::ACTIVATOR)
        .header(QUESTION, question.value());
    if let Some(token) = token.filter(|_| *question == Question::All) {
        request = request.header(http::header::AUTHORIZATION, token.bearer().await?);
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let answered = async {
        let answer = sender.send_request(request).await?;
        if *question == Question::All && REFUSALS.contains(&answer.status()) {
            return anyhow::Ok(None);
        }
        anyhow::ensure!(answer.status().is_success(), "it answers {}", answer.status());
        let body = answer.into_body();
        let body = Limited::new(body, BODY_LENGTH_MAX).collect().await.map_err(|error| anyhow::anyhow!(error))?;
        Ok(Some(serde_json::from_slice(&body.to_bytes())?))
    };
    let answer = answered.await;
    connection.abort();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

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

    /// Goal: an activator that rejects the query about all its ports is queried for some numbers at a time, and later
    /// for all again.
    #[tokio::test]
    async fn numbers_are_named_where_the_question_about_all_is_refused() {
        let many: BTreeSet<u16> = (1..=300).collect();
        for (status, is_refused) in [(401, true), (403, true), (429, true), (503, true), (500, false)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let at = listener.local_addr().expect("bound");
            let serving = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.expect("accepted");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("a head"));
                }
                let answer = format!("HTTP/1.1 {status} no\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.expect("open");
            });
            let answers = ask(at, &many, None).await;
            assert_eq!(matches!(answers, Answers::NotAll), is_refused, "{status}: {answers:?}");
            serving.await.expect("no panic");
        }
        let (now, mut pace) = (Instant::now(), Pace::default());
        assert_eq!((pace.most(now, true), pace.most(now, false)), (usize::MAX, NAMED_MAX - 1));
        pace.refused(now);
        assert_eq!((pace.most(now, true), pace.most(now + NAMED_FOR, true)), (NAMED_MAX - 1, usize::MAX));
    }
}
