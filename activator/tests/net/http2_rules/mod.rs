//! HTTP/2 as clients may speak it, and as they may not: a table of frames for each section of RFC 9113 and RFC 7541, and
//! what the activator must answer. Which cases there are follows h2spec, the suite that HTTP/2 servers are measured by;
//! what each must come to is what the RFC says, and stricter than there: a connection that is merely closed where an
//! error is to be told counts as a failure. One thing is taken as it is: where the RFC has a more exact code for the end of
//! the connection, the library `h2` says `PROTOCOL_ERROR`.
//!
//! `cargo test -p activator --test net http2_rules -- --nocapture` prints a line for each case.

mod frames;
mod generic;
mod hpack;
mod messages;
mod streams;
mod wire;

use crate::rig::{self, Pod, Rig};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::net::SocketAddr;
use wire::{
    ACK, DATA, END_STREAM, Event, GOAWAY, HEADERS, PING, PING_DATA, PROTOCOL_ERROR, RST_STREAM, SETTINGS, Wire, ping,
};

/// What the pod says to `/`.
const BODY: &str = "hello, world";

/// One thing that a case does.
enum Step {
    Send(Vec<u8>),
    /// An answer with status 200 on this stream.
    Answer(u32),
    /// The end of the answer on this stream.
    End(u32),
    /// DATA of this length on this stream.
    Data(u32, usize),
    /// SETTINGS are acknowledged.
    Settled,
    /// A ping is answered: the connection goes on.
    Alive,
    /// GOAWAY with one of these codes or `PROTOCOL_ERROR`, and the end of the connection.
    ConnectionError(&'static [u32]),
    /// RST_STREAM with one of these codes, after which the connection goes on; or GOAWAY as above, since a server may
    /// treat any stream error so (RFC 9113, 5.4.2).
    StreamError(u32, &'static [u32]),
    /// The end of the connection, with GOAWAY or without.
    Closed,
    /// Either of the two.
    AliveOrClosed,
}
use Step::{Alive, AliveOrClosed, Answer, Closed, ConnectionError, Data, End, Send, Settled, StreamError};

/// A section of a RFC, what is done, and the steps.
struct Case(&'static str, &'static str, Vec<Step>);

/// An activator before a pod that speaks HTTP/1.1 and reads uploads to their end.
async fn warm() -> (Rig, Pod) {
    let pod = Pod::start(|request: Request<Incoming>| async move {
        if request.uri().path() == "/held" {
            std::future::pending::<()>().await;
        }
        let _ = request.into_body().collect().await;
        Response::new(rig::full(BODY))
    })
    .await;
    let rig = Rig::start().await;
    rig.revision(|_| {}).await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    (rig, pod)
}

/// Whether fields begin with status 200, the static table's eighth entry. Changes of the table's size may go before.
fn is_ok(mut fields: &[u8]) -> bool {
    while let [first @ 0x20..0x40, rest @ ..] = fields {
        let digits = if *first == 0x3f { rest.iter().take_while(|byte| **byte >= 0x80).count() + 1 } else { 0 };
        fields = rest.get(digits..).unwrap_or_default();
    }
    fields.first() == Some(&0x88)
}

/// Reads until what is expected has come.
async fn expect(wire: &mut Wire, step: &Step) -> Result<(), String> {
    if matches!(step, Alive | AliveOrClosed) {
        wire.send(&ping()).await;
    }
    loop {
        let event = wire.next().await;
        let (kind, flags, of, payload) = match &event {
            Event::Frame { kind, flags, stream, payload } => (*kind, *flags, *stream, &payload[..]),
            Event::Closed if matches!(step, Closed | AliveOrClosed) => return Ok(()),
            Event::Closed | Event::Silence => return Err(format!("{event:?}")),
        };
        let code = |at: usize| {
            payload.get(at..at + 4).map_or(u32::MAX, |code| u32::from_be_bytes(code.try_into().expect("four")))
        };
        let told = || Err(format!("{event:?}"));
        match (step, kind) {
            (Answer(stream), HEADERS) if of == *stream => return if is_ok(payload) { Ok(()) } else { told() },
            (End(stream), HEADERS | DATA) if of == *stream && flags & END_STREAM != 0 => return Ok(()),
            (Data(stream, length), DATA) if of == *stream => {
                return if payload.len() == *length { Ok(()) } else { told() };
            }
            (Settled, SETTINGS) if flags & ACK != 0 => return Ok(()),
            (Alive | AliveOrClosed, PING) if flags & ACK != 0 && payload == PING_DATA => return Ok(()),
            (ConnectionError(codes) | StreamError(_, codes), GOAWAY) => {
                let code = code(4);
                let is_told = code == PROTOCOL_ERROR || codes.contains(&code);
                return if is_told { Box::pin(expect(wire, &Closed)).await } else { told() };
            }
            (StreamError(stream, codes), RST_STREAM) if of == *stream => {
                return if codes.contains(&code(0)) { Box::pin(expect(wire, &Alive)).await } else { told() };
            }
            (Closed | AliveOrClosed, _) => {}
            (_, GOAWAY) => return told(),
            (Answer(stream) | End(stream) | Data(stream, _), RST_STREAM) if of == *stream => return told(),
            _ => {} // Settings, windows, and what belongs to earlier steps.
        }
    }
}

/// Runs a case on a connection of its own.
async fn run(address: SocketAddr, steps: &[Step]) -> Result<(), String> {
    let mut wire = Wire::handshake(address).await;
    for (number, step) in steps.iter().enumerate() {
        match step {
            Send(bytes) => wire.send(bytes).await,
            _ => expect(&mut wire, step).await.map_err(|error| format!("step {number}: {error}"))?,
        }
    }
    Ok(())
}

/// Runs all cases, and fails with those that fail.
async fn hold(cases: Vec<Case>) {
    let (rig, _pod) = warm().await;
    let (mut failed, all) = (Vec::new(), cases.len());
    for Case(section, name, steps) in cases {
        let result = run(rig.address, &steps).await;
        println!("{section:>9} {name}: {}", result.as_ref().map_or_else(|error| error.as_str(), |()| "passed"));
        if let Err(error) = result {
            failed.push(format!("{section} {name}: {error}"));
        }
    }
    println!("{} of {all} passed", all - failed.len());
    assert!(failed.is_empty(), "{failed:#?}");
}

#[tokio::test]
async fn what_is_allowed_is_served() {
    hold(generic::cases()).await;
}

#[tokio::test]
async fn frames_are_what_they_must_be() {
    hold(frames::cases()).await;
}

#[tokio::test]
async fn streams_go_through_their_states() {
    hold(streams::cases()).await;
}

#[tokio::test]
async fn requests_are_well_formed() {
    hold(messages::cases()).await;
}

#[tokio::test]
async fn fields_are_compressed_as_they_must_be() {
    hold(hpack::cases()).await;
}

/// RFC 9113, 3.4: whoever begins otherwise is cut off.
#[tokio::test]
async fn another_preface_ends_the_connection() {
    let (rig, _pod) = warm().await;
    let mut wire = Wire::connect(rig.address).await;
    wire.send(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").await;
    expect(&mut wire, &Closed).await.expect("closed");
}
