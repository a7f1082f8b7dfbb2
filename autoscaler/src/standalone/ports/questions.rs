//! Queries to activators about their bound port numbers. They are sent to the shared port: one query at a time to each
//! activator, about all numbers that a reconcile waits for.
//!
//! # Frequency
//!
//! The first query about a number is sent at once when a reconcile begins to wait. Further ones follow after
//! [`PAUSE_FIRST`], twice that, and so on up to [`PAUSE_MAX`], until the activator confirms the number: it binds a
//! number some milliseconds after the number enters the ledger.
//!
//! Queries begin in rounds, [`PAUSE_FIRST`] apart at least. A query names at most [`NAMED_MAX`] numbers, and the rest
//! waits for the next round. This allows some ten thousand numbers a second, far more than slices can be written in
//! that time.
//!
//! An activator without pending queries is asked for its process identity every ten seconds ([`Proofs::unidentified`]).
//!
//! [`Proofs::unidentified`]: autoscaler_core::ports::Proofs::unidentified

use super::PortAllocator;
use super::state::PortState;
use crate::engine::probe;
use autoscaler_core::ports::NumberResponse;
use bytes::Bytes;
use common::bound_ports::{BoundPort, BoundPorts, NAMED_MAX, QUESTION, Question};
use common::ports::Listening;
use common_runtime::exchange::exchange;
use futures::stream::{FuturesUnordered, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

/// Pause before the second query about a number, and the least time between two rounds of queries.
const PAUSE_FIRST: Duration = Duration::from_millis(25);
/// Maximum pause between two queries about a number.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Interval between searches for activators whose identity is outdated.
const IDENTITY_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum duration of one query.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of a response: a uid and an error for each number.
const BODY_LENGTH_MAX: usize = 1 << 20;

/// Sends all pending queries, forever.
///
/// Cancel safe: queries in flight are dropped.
pub(super) async fn send_queries(port_allocator: &PortAllocator) {
    let mut under_way = FuturesUnordered::new();
    let mut queried: BTreeSet<IpAddr> = BTreeSet::new();
    loop {
        let now = Instant::now();
        let (due, next) = due(&mut port_allocator.state.lock(), &queried, now);
        for (at, about) in due {
            queried.insert(at.ip());
            under_way.push(async move { (at.ip(), now, query(at, &about).await) });
        }
        let round = async {
            sleep(PAUSE_FIRST).await;
            tokio::select! {
                () = port_allocator.query_signal.notified() => {}
                () = sleep_until(next) => {}
            }
        };
        tokio::pin!(round);
        loop {
            tokio::select! {
                () = &mut round => break,
                Some((address, sent, responses)) = under_way.next() => {
                    queried.remove(&address);
                    port_allocator.record_responses(address, responses, sent);
                    port_allocator.query_signal.notify_one(); // The activator may have further pending queries.
                }
            }
        }
    }
}

/// Begins all queries that are due, except at activators in `queried`, which have not responded yet. Returns the
/// numbers by the shared ports of the activators, and the time when the next query may be due.
fn due(
    state: &mut PortState,
    queried: &BTreeSet<IpAddr>,
    now: Instant,
) -> (BTreeMap<SocketAddr, BTreeSet<u16>>, Instant) {
    for unidentified in state.proofs.unidentified(now.into_std()) {
        state.queries.entry(unidentified).or_default();
    }
    let (ports, mut due, mut next) = (state.shared_ports(), BTreeMap::new(), now + IDENTITY_CHECK_INTERVAL);
    let mut pending: Vec<_> = state.queries.iter_mut().collect();
    pending.sort_by_key(|(_, pending)| pending.next); // So that no number waits for others forever.
    for ((address, number), pending) in pending {
        let Some(port) = ports.get(address).filter(|_| !queried.contains(address)) else { continue };
        if let Some(at) = pending.next.filter(|at| now < *at) {
            next = next.min(at);
            continue;
        }
        let about: &mut BTreeSet<u16> = due.entry(SocketAddr::new(*address, *port)).or_default();
        if about.len() < NAMED_MAX {
            about.insert(*number);
            pending.pause = (pending.pause * 2).clamp(PAUSE_FIRST, PAUSE_MAX);
            pending.next = Some(now + pending.pause);
        }
    }
    (due, next)
}

/// Queries the activator at an address about these numbers. Returns no results if there is no valid response.
async fn query(at: SocketAddr, numbers: &BTreeSet<u16>) -> Vec<(u16, NumberResponse)> {
    match tokio::time::timeout(TIMEOUT, send(at, numbers)).await {
        Ok(Ok(response)) => return read(response, numbers),
        Ok(Err(error)) => tracing::debug!(%at, %error, "failed to query an activator about its port numbers"),
        Err(_) => tracing::debug!(%at, "an activator did not respond in time to a query about its port numbers"),
    }
    Vec::new()
}

fn read(response: BoundPorts, numbers: &BTreeSet<u16>) -> Vec<(u16, NumberResponse)> {
    let BoundPorts { instance, ports, .. } = response;
    let rows: BTreeMap<u16, BoundPort> = ports.into_iter().map(|port| (port.number, port)).collect();
    let read = |number: &u16| {
        let response = match rows.get(number) {
            None => NumberResponse::Refused,
            Some(port) if port.in_use => NumberResponse::Foreign,
            // A number that is being closed is still bound, even if the response has an error for it.
            Some(port) if port.error.is_some() && !port.closing => NumberResponse::Refused,
            Some(port) => {
                let (instance, uid) = (instance.clone(), port.uid.clone());
                NumberResponse::Ours(Listening { instance, uid, is_held: !port.closing })
            }
        };
        (*number, response)
    };
    numbers.iter().map(read).collect()
}

async fn send(at: SocketAddr, numbers: &BTreeSet<u16>) -> anyhow::Result<BoundPorts> {
    let stream = TcpStream::connect(at).await?;
    let request = Request::get("/")
        .header(http::header::HOST, at.to_string())
        .header(http::header::USER_AGENT, probe::USER_AGENT)
        .header(http::header::CONNECTION, "close")
        .header(probe::PROBE_HEADER, probe::ACTIVATOR)
        .header(QUESTION, Question::Numbers(numbers.iter().copied().collect()).value())
        .body(Empty::<Bytes>::new())?;
    let response = exchange(stream, request, async |response| {
        anyhow::ensure!(response.status().is_success(), "the response has status {}", response.status());
        let body = Limited::new(response.into_body(), BODY_LENGTH_MAX).collect().await;
        body.map(|body| body.to_bytes()).map_err(|error| anyhow::anyhow!(error))
    });
    Ok(serde_json::from_slice(&response.await??)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standalone::ports::state::PendingQuery;
    use crate::standalone::traffic::slices::SERVICE_NAME;
    use common::RevisionKey as Key;
    use common::names;
    use serde_json::json;

    #[test]
    fn each_row_of_a_response_is_an_answer() {
        let text = r#"{"instance":"i","pod":"p","ports":[
            {"number":1,"uid":"u"},{"number":2,"uid":"u","inUse":true,"error":"in use"},
            {"number":3,"uid":"u","error":"the workload of the port is not known to this activator"},
            {"number":4,"uid":"u","closing":true,"error":"the workload of the port is not known to this activator"}]}"#;
        let response: BoundPorts = serde_json::from_str(text).expect("a response");
        let ours = |is_held| NumberResponse::Ours(Listening { instance: "i".into(), uid: "u".into(), is_held });
        let expected = [
            (1, ours(true)),
            (2, NumberResponse::Foreign),
            (3, NumberResponse::Refused),
            (4, ours(false)),
            (5, NumberResponse::Refused),
        ];
        assert_eq!(read(response, &(1..=5).collect()), expected);
    }

    /// Goal: queries about a number become rarer, whichever other numbers are pending. One query names a bounded count
    /// of numbers, each number gets its turn, and an activator that has not responded is not queried.
    #[test]
    fn queries_without_a_response_become_rarer() {
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut state = PortState::default();
        let slice = json!({
            "metadata": {"name": "a", "namespace": "system", "labels": {SERVICE_NAME: names::ACTIVATOR_SERVICE}},
            "addressType": "IPv4", "endpoints": [{"addresses": [address.to_string()]}],
        });
        let slice = serde_json::from_value(slice).expect("a slice");
        let (begin, key) = (Instant::now(), Key::new("system", "a"));
        state.slice("system", &key, Some(&slice), begin.into_std());
        let count = u16::try_from(NAMED_MAX).expect("few") + 1;
        state.queries.extend((1..=count).map(|number| ((address, number), PendingQuery::default())));
        let mut due_after = |after: u64, queried: &[IpAddr]| {
            let now = begin + Duration::from_millis(after);
            let (found, next) = due(&mut state, &queried.iter().copied().collect(), now);
            (found.into_values().next().unwrap_or_default(), (next - begin).as_millis())
        };
        let all_but_last: BTreeSet<u16> = (1..count).collect();
        assert_eq!(due_after(0, &[address]), (BTreeSet::new(), 1000));
        assert_eq!(due_after(0, &[]), (all_but_last.clone(), 1000));
        assert_eq!(due_after(1, &[]), ([count].into(), 25));
        assert_eq!(due_after(24, &[]), (BTreeSet::new(), 25));
        assert_eq!(due_after(25, &[]), (all_but_last.clone(), 26));
        assert_eq!(due_after(26, &[]), ([count].into(), 75));
        assert_eq!(due_after(75, &[]).0, all_but_last);
    }
}
