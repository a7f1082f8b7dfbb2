//! RFC 9113, 5: identifiers, states, concurrency, errors, extensions; and flow control, 6.9.

use super::wire::*;
use super::{Alive, Answer, Case, Closed, ConnectionError, Data, End, Send, Settled, StreamError};

/// Maximum number of open streams of a client.
const STREAMS_MAX: u32 = 250;

/// Code for a frame on a closed or half-closed stream.
const CLOSED: &[u32] = &[STREAM_CLOSED];
const PROTOCOL: &[u32] = &[PROTOCOL_ERROR];

fn more(stream: u32) -> Vec<u8> {
    frame(CONTINUATION, END_HEADERS, stream, &field("x-more", "1"))
}

fn trailers(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &field("x-sum", "1"))
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = states();
    all.extend(windows());
    all
}

fn states() -> Vec<Case> {
    let too_many: Vec<u8> = (0..=STREAMS_MAX).flat_map(|n| held(2 * n + 1)).collect();
    let on_itself = [&[0, 0, 0, 1, 255][..], &request("GET", "/")].concat();
    let unknown = || Send(frame(0x16, 0, 0, &[0; 8]));
    let bad_ping = || Send(frame(PING, 0, 3, &[0; 8]));
    vec![
        Case("5.1", "idle: DATA", vec![Send(data(END_STREAM, 1, b"test")), ConnectionError(PROTOCOL)]),
        Case("5.1", "idle: RST_STREAM", vec![Send(reset(1, CANCEL)), ConnectionError(PROTOCOL)]),
        Case("5.1", "idle: WINDOW_UPDATE", vec![Send(window_update(1, 100)), ConnectionError(PROTOCOL)]),
        Case("5.1", "idle: CONTINUATION", vec![Send(more(1)), ConnectionError(PROTOCOL)]),
        Case(
            "5.1",
            "half-closed: DATA",
            vec![Send(held(1)), Send(data(END_STREAM, 1, b"test")), StreamError(1, CLOSED)],
        ),
        Case("5.1", "half-closed: HEADERS", vec![Send(held(1)), Send(trailers(1)), StreamError(1, CLOSED)]),
        Case(
            "5.1",
            "half-closed: CONTINUATION",
            vec![Send(held(1)), Send(more(1)), StreamError(1, &[STREAM_CLOSED, PROTOCOL_ERROR])],
        ),
        Case(
            "5.1",
            "reset: DATA",
            vec![Send(post(1)), Send(reset(1, CANCEL)), Send(data(END_STREAM, 1, b"test")), StreamError(1, CLOSED)],
        ),
        Case(
            "5.1",
            "reset: HEADERS",
            vec![Send(post(1)), Send(reset(1, CANCEL)), Send(trailers(1)), StreamError(1, CLOSED)],
        ),
        Case(
            "5.1",
            "reset: CONTINUATION",
            vec![
                Send(post(1)),
                Send(reset(1, CANCEL)),
                Send(more(1)),
                StreamError(1, &[STREAM_CLOSED, PROTOCOL_ERROR]),
            ],
        ),
        Case(
            "5.1",
            "closed: DATA",
            vec![Send(get(1)), End(1), Send(data(END_STREAM, 1, b"test")), StreamError(1, CLOSED)],
        ),
        Case("5.1", "closed: HEADERS", vec![Send(get(1)), End(1), Send(get(1)), ConnectionError(CLOSED)]),
        Case(
            "5.1",
            "closed: CONTINUATION",
            vec![Send(get(1)), End(1), Send(more(1)), ConnectionError(&[STREAM_CLOSED, PROTOCOL_ERROR])],
        ),
        Case("5.1.1", "an even identifier", vec![Send(get(2)), ConnectionError(PROTOCOL)]),
        Case("5.1.1", "an identifier below the last", vec![Send(held(5)), Send(get(3)), ConnectionError(PROTOCOL)]),
        Case(
            "5.1.2",
            "more streams than are allowed",
            vec![Send(too_many), StreamError(2 * STREAMS_MAX + 1, &[PROTOCOL_ERROR, REFUSED_STREAM])],
        ),
        Case(
            "5.3.1",
            "HEADERS that depend on themselves",
            vec![
                Send(frame(HEADERS, END_STREAM | END_HEADERS | WITH_PRIORITY, 1, &on_itself)),
                StreamError(1, PROTOCOL),
            ],
        ),
        Case("5.3.1", "PRIORITY that depends on itself", vec![Send(priority(2, 2, 255)), StreamError(2, PROTOCOL)]),
        Case("5.4.1", "an error ends the connection", vec![bad_ping(), Closed]),
        Case("5.4.1", "an error is told before", vec![bad_ping(), ConnectionError(PROTOCOL)]),
        Case("5.5", "a frame of an unknown kind", vec![unknown(), Alive]),
        Case(
            "5.5",
            "a frame of an unknown kind amid a head",
            vec![Send(frame(HEADERS, END_STREAM, 1, &request("GET", "/"))), unknown(), ConnectionError(PROTOCOL)],
        ),
    ]
}

fn windows() -> Vec<Case> {
    const WINDOW: u16 = 4;
    const MOST: u32 = 0x7fff_ffff;
    vec![
        Case("6.9", "WINDOW_UPDATE by 0", vec![Send(window_update(0, 0)), ConnectionError(PROTOCOL)]),
        Case(
            "6.9",
            "WINDOW_UPDATE by 0 on a stream",
            vec![Send(post(1)), Send(window_update(1, 0)), StreamError(1, PROTOCOL)],
        ),
        Case(
            "6.9",
            "WINDOW_UPDATE of another length",
            vec![Send(frame(WINDOW_UPDATE, 0, 0, b"\0\0\x01")), ConnectionError(&[FRAME_SIZE_ERROR])],
        ),
        Case("6.9.1", "a window of 1", vec![Send(settings(&[(WINDOW, 1)])), Settled, Send(get(1)), Data(1, 1)]),
        Case(
            "6.9.1",
            "a connection's window that overflows",
            vec![Send(window_update(0, MOST)), Send(window_update(0, MOST)), ConnectionError(&[FLOW_CONTROL_ERROR])],
        ),
        Case(
            "6.9.1",
            "a stream's window that overflows",
            vec![
                Send(post(1)),
                Send(window_update(1, MOST)),
                Send(window_update(1, MOST)),
                StreamError(1, &[FLOW_CONTROL_ERROR]),
            ],
        ),
        Case(
            "6.9.2",
            "a window that opens",
            vec![
                Send(settings(&[(WINDOW, 0)])),
                Settled,
                Send(get(1)),
                Answer(1),
                Send(settings(&[(WINDOW, 1)])),
                Data(1, 1),
            ],
        ),
        Case(
            "6.9.2",
            "a window below 0",
            vec![
                Send(settings(&[(WINDOW, 3)])),
                Settled,
                Send(get(1)),
                Data(1, 3),
                Send(settings(&[(WINDOW, 2)])),
                Settled,
                Send(window_update(1, 2)),
                Data(1, 1),
            ],
        ),
        Case(
            "6.9.2",
            "an initial window that is too large",
            vec![Send(settings(&[(WINDOW, MOST + 1)])), ConnectionError(&[FLOW_CONTROL_ERROR])],
        ),
    ]
}
