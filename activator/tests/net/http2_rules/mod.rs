//! Valid and invalid HTTP/2 of clients: tables of frames for each section of RFC 9113 and RFC 7541, and the required
//! reaction of the activator.
//!
//! The cases follow h2spec, the usual suite for HTTP/2 servers. The required reactions are those of the RFC, and
//! stricter than in h2spec: if an error must be reported, a close without a report is a failure. One exception: the
//! library `h2` ends connections with `PROTOCOL_ERROR` where the RFC has a more specific code.
//!
//! `cargo test -p activator --test net http2_rules -- --nocapture` prints a line for each case.

mod frames;
mod generic;
mod messages;
mod streams;
mod wire;

use crate::rig::{self, Pod, Rig};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;
use wire::*;

/// Body of the pod's response to `/`.
const BODY: &str = "hello, world";

/// Longest wait for the event of a step.
const SILENCE: Duration = Duration::from_secs(10);

/// Step of a case: bytes to send, or an expected event.
enum Step {
    Send(Vec<u8>),
    /// Response with status 200 on this stream.
    Success(u32),
    /// End of the response on this stream.
    End(u32),
    /// DATA of this length on this stream.
    Data(u32, usize),
    /// Acknowledgement of SETTINGS.
    Settled,
    /// Response to a PING: the connection is still open.
    Alive,
    /// GOAWAY with one of these codes or `PROTOCOL_ERROR`, and the end of the connection.
    GoAway(&'static [u32]),
    /// RST_STREAM with one of these codes, and the connection stays open. Also GOAWAY as above, because a server may
    /// treat any stream error as a connection error (RFC 9113, 5.4.2).
    StreamError(u32, &'static [u32]),
    /// End of the connection, with or without GOAWAY.
    Closed,
    /// `Alive` or `Closed`.
    AliveOrClosed,
}
use Step::{Alive, AliveOrClosed, Closed, Data, End, GoAway, Send, Settled, StreamError, Success};

/// Section of an RFC, description, and steps.
struct Case(&'static str, &'static str, Vec<Step>);

/// Returns a case: after these frames an event is expected.
fn case<const N: usize>(section: &'static str, name: &'static str, frames: [Vec<u8>; N], expected: Step) -> Case {
    Case(section, name, frames.into_iter().map(Send).chain([expected]).collect())
}

/// Starts an activator with a pod that speaks HTTP/1.1 and reads uploads to their end.
async fn warm() -> (Rig, Pod) {
    let pod = Pod::start(|request: Request<Incoming>| async move {
        if request.uri().path() == "/held" {
            std::future::pending::<()>().await;
        }
        let _ = request.into_body().collect().await;
        Response::new(rig::full(BODY))
    })
    .await;
    let rig = Rig::with_pods(&[pod.address], |_| {}).await;
    rig.until_open().await;
    (rig, pod)
}

/// Returns whether fields begin with status 200, entry 8 of the static table. Size updates of the dynamic table may
/// come first.
fn is_ok(mut fields: &[u8]) -> bool {
    while let [first @ 0x20..0x40, rest @ ..] = fields {
        let digits = if *first == 0x3f { rest.iter().take_while(|byte| **byte >= 0x80).count() + 1 } else { 0 };
        fields = rest.get(digits..).unwrap_or_default();
    }
    fields.first() == Some(&0x88)
}

/// Reads until the expected event comes.
async fn expect(client: &mut Frames, step: &Step) -> Result<(), String> {
    if matches!(step, Alive | AliveOrClosed) {
        client.send(&ping()).await;
    }
    loop {
        let Some(event) = client.next().await else {
            let may_close = matches!(step, Closed | AliveOrClosed);
            return may_close.then_some(()).ok_or_else(|| "the connection ended".to_owned());
        };
        let (flags, id, payload) = (event.flags, event.stream, &event.payload[..]);
        let mismatch = || Err(format!("{event:?}"));
        match (step, event.kind) {
            (Success(stream), HEADERS) if id == *stream => return if is_ok(payload) { Ok(()) } else { mismatch() },
            (End(stream), HEADERS | DATA) if id == *stream && flags & END_STREAM != 0 => return Ok(()),
            (Data(stream, length), DATA) if id == *stream => {
                return if payload.len() == *length { Ok(()) } else { mismatch() };
            }
            (Settled, SETTINGS) if flags & ACK != 0 => return Ok(()),
            (Alive | AliveOrClosed, PING) if flags & ACK != 0 && payload == PING_DATA => return Ok(()),
            (GoAway(codes) | StreamError(_, codes), GOAWAY) => {
                let code = event.code(4);
                let is_expected = code == PROTOCOL_ERROR || codes.contains(&code);
                return if is_expected { Box::pin(expect(client, &Closed)).await } else { mismatch() };
            }
            (StreamError(stream, codes), RST_STREAM) if id == *stream => {
                return if codes.contains(&event.code(0)) {
                    Box::pin(expect(client, &Alive)).await
                } else {
                    mismatch()
                };
            }
            (Closed | AliveOrClosed, _) => {}
            (_, GOAWAY) => return mismatch(),
            (Success(stream) | End(stream) | Data(stream, _), RST_STREAM) if id == *stream => return mismatch(),
            _ => {} // Settings, windows, and frames of earlier steps.
        }
    }
}

/// Runs a case on its own connection.
async fn run(rig: &Rig, steps: &[Step]) -> Result<(), String> {
    let mut client = Frames::open(rig).await;
    let first = client.next().await;
    let is_preface = first.as_ref().is_some_and(|frame| (frame.kind, frame.flags, frame.stream) == (SETTINGS, 0, 0));
    assert!(is_preface, "{first:?}");
    client.send(&frame(SETTINGS, ACK, 0, b"")).await;
    for (number, step) in [Settled].iter().chain(steps).enumerate() {
        let ended = match step {
            Send(bytes) => {
                client.send(bytes).await;
                continue;
            }
            _ => tokio::time::timeout(SILENCE, expect(&mut client, step)).await,
        };
        ended.unwrap_or_else(|_| Err("silence".to_owned())).map_err(|error| format!("step {number}: {error}"))?;
    }
    Ok(())
}

/// Runs all cases, and fails with a list of those that fail.
async fn run_all(cases: Vec<Case>) {
    let (rig, _pod) = warm().await;
    let (mut failed, all) = (Vec::new(), cases.len());
    for Case(section, name, steps) in cases {
        let result = run(&rig, &steps).await;
        println!("{section:>9} {name}: {}", result.as_ref().map_or_else(|error| error.as_str(), |()| "passed"));
        if let Err(error) = result {
            failed.push(format!("{section} {name}: {error}"));
        }
    }
    println!("{} of {all} passed", all - failed.len());
    assert!(failed.is_empty(), "{failed:#?}");
}

#[tokio::test]
async fn valid_input_is_accepted() {
    run_all(generic::cases()).await;
}

#[tokio::test]
async fn frames_follow_the_rfc() {
    run_all(frames::cases()).await;
}

#[tokio::test]
async fn stream_states_and_windows_follow_the_rfc() {
    run_all(streams::cases()).await;
}

#[tokio::test]
async fn requests_follow_the_rfc() {
    run_all(messages::cases()).await;
}

#[tokio::test]
async fn undecodable_header_blocks_end_the_connection() {
    run_all(messages::undecodable()).await;
}
