//! RFC 9113, 5: identifiers, states, concurrency, errors, extensions; and flow control, 6.9.

use super::wire::*;
use super::{Case, Closed, Data, End, GoAway, Send, Settled, StreamError, Success, case};

/// Maximum number of open streams of a client.
const STREAMS_MAX: u32 = 250;

const CLOSED: &[u32] = &[STREAM_CLOSED];
const PROTOCOL: &[u32] = &[PROTOCOL_ERROR];
const CLOSED_OR_PROTOCOL: &[u32] = &[STREAM_CLOSED, PROTOCOL_ERROR];
const FLOW: &[u32] = &[FLOW_CONTROL_ERROR];
const REFUSED: &[u32] = &[PROTOCOL_ERROR, REFUSED_STREAM];

fn more(stream: u32) -> Vec<u8> {
    frame(CONTINUATION, END_HEADERS, stream, &field("x-more", "1"))
}

fn trailers(stream: u32) -> Vec<u8> {
    headers(stream, &field("x-sum", "1"))
}

pub(super) fn cases() -> Vec<Case> {
    states().into_iter().chain(windows()).collect()
}

fn states() -> Vec<Case> {
    let too_many: Vec<u8> = (0..=STREAMS_MAX).flat_map(|n| held(2 * n + 1)).collect();
    let on_itself = [&[0, 0, 0, 1, 255][..], &request("GET", "/")].concat();
    let on_itself = frame(HEADERS, END_STREAM | END_HEADERS | WITH_PRIORITY, 1, &on_itself);
    let begun = frame(HEADERS, END_STREAM, 1, &request("GET", "/"));
    let unknown = || frame(0x16, 0, 0, &[0; 8]);
    let bad_ping = || frame(PING, 0, 3, &[0; 8]);
    vec![
        case("5.1", "idle: DATA", [last_data(1)], GoAway(PROTOCOL)),
        case("5.1", "idle: RST_STREAM", [reset(1, CANCEL)], GoAway(PROTOCOL)),
        case("5.1", "idle: WINDOW_UPDATE", [window_update(1, 100)], GoAway(PROTOCOL)),
        case("5.1", "idle: CONTINUATION", [more(1)], GoAway(PROTOCOL)),
        case("5.1", "half-closed: DATA", [held(1), last_data(1)], StreamError(1, CLOSED)),
        case("5.1", "half-closed: HEADERS", [held(1), trailers(1)], StreamError(1, CLOSED)),
        case("5.1", "half-closed: CONTINUATION", [held(1), more(1)], StreamError(1, CLOSED_OR_PROTOCOL)),
        case("5.1", "reset: DATA", [post(1), reset(1, CANCEL), last_data(1)], StreamError(1, CLOSED)),
        case("5.1", "reset: HEADERS", [post(1), reset(1, CANCEL), trailers(1)], StreamError(1, CLOSED)),
        case("5.1", "reset: CONTINUATION", [post(1), reset(1, CANCEL), more(1)], StreamError(1, CLOSED_OR_PROTOCOL)),
        Case("5.1", "closed: DATA", vec![Send(get(1)), End(1), Send(last_data(1)), StreamError(1, CLOSED)]),
        Case("5.1", "closed: HEADERS", vec![Send(get(1)), End(1), Send(get(1)), GoAway(CLOSED)]),
        Case("5.1", "closed: CONTINUATION", vec![Send(get(1)), End(1), Send(more(1)), GoAway(CLOSED_OR_PROTOCOL)]),
        case("5.1.1", "an even identifier", [get(2)], GoAway(PROTOCOL)),
        case("5.1.1", "an identifier below the last", [held(5), get(3)], GoAway(PROTOCOL)),
        case("5.1.2", "more streams than are allowed", [too_many], StreamError(2 * STREAMS_MAX + 1, REFUSED)),
        case("5.3.1", "HEADERS that depend on themselves", [on_itself], StreamError(1, PROTOCOL)),
        case("5.3.1", "PRIORITY that depends on itself", [priority(2, 2, 255)], StreamError(2, PROTOCOL)),
        case("5.4.1", "an error ends the connection", [bad_ping()], Closed),
        case("5.4.1", "GOAWAY precedes the end of the connection", [bad_ping()], GoAway(PROTOCOL)),
        case("5.5", "a frame of an unknown kind amid a head", [begun, unknown()], GoAway(PROTOCOL)),
    ]
}

fn windows() -> Vec<Case> {
    const WINDOW_MAX: u32 = 0x7fff_ffff;
    let initial = |value| settings(&[(4, value)]); // INITIAL_WINDOW_SIZE
    let grow = |stream| window_update(stream, WINDOW_MAX);
    let below = vec![Send(initial(2)), Settled, Send(window_update(1, 2)), Data(1, 1)];
    vec![
        case("6.9", "WINDOW_UPDATE by 0", [window_update(0, 0)], GoAway(PROTOCOL)),
        case("6.9", "WINDOW_UPDATE by 0 on a stream", [post(1), window_update(1, 0)], StreamError(1, PROTOCOL)),
        case("6.9", "length 3", [frame(WINDOW_UPDATE, 0, 0, b"\0\0\x01")], GoAway(&[FRAME_SIZE_ERROR])),
        Case("6.9.1", "a window of 1", vec![Send(initial(1)), Settled, Send(get(1)), Data(1, 1)]),
        case("6.9.1", "a connection's window that overflows", [grow(0), grow(0)], GoAway(FLOW)),
        case("6.9.1", "a stream's window that overflows", [post(1), grow(1), grow(1)], StreamError(1, FLOW)),
        Case(
            "6.9.2",
            "a window that opens",
            vec![Send(initial(0)), Settled, Send(get(1)), Success(1), Send(initial(1)), Data(1, 1)],
        ),
        Case(
            "6.9.2",
            "a window below 0",
            [vec![Send(initial(3)), Settled, Send(get(1)), Data(1, 3)], below].into_iter().flatten().collect(),
        ),
    ]
}
