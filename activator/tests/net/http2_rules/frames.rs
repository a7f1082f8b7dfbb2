//! RFC 9113, 3, 4 and 6: each kind of frame, and its possible errors.

use super::wire::*;
use super::{Alive, Answer, Case, ConnectionError, Data, Send, Settled, StreamError};

const PROTOCOL: &[u32] = &[PROTOCOL_ERROR];
const SIZE: &[u32] = &[FRAME_SIZE_ERROR];
/// Size of the largest frame that a client may send by default.
const LARGEST: usize = 1 << 14;

/// Returns HEADERS of a GET without END_HEADERS.
fn begun(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM, stream, &request("GET", "/"))
}

fn more(flags: u8, stream: u32) -> Vec<u8> {
    frame(CONTINUATION, flags, stream, &field("x-more", "1"))
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = formats();
    all.extend(kinds());
    all.extend(connection_frames());
    all.extend(continuations());
    all
}

fn formats() -> Vec<Case> {
    let with_reserved_bit = frame(PING, 0x16, 0x8000_0000, b"reserved");
    let mut undefined_flags = ping();
    undefined_flags[4] = 0x16;
    let large = frame(HEADERS, END_STREAM | END_HEADERS, 1, &vec![0; LARGEST + 1]);
    vec![
        Case("3.4", "settings are acknowledged", vec![Send(settings(&[])), Settled, Alive]),
        Case("4.1", "a frame of an unknown kind", vec![Send(frame(0x16, 0, 0, &[0; 8])), Alive]),
        Case("4.1", "unknown flags", vec![Send(undefined_flags), Alive]),
        Case("4.1", "the reserved bit", vec![Send(with_reserved_bit), Alive]),
        Case("4.2", "the largest DATA", vec![Send(post(1)), Send(data(END_STREAM, 1, &[0; LARGEST])), Answer(1)]),
        Case(
            "4.2",
            "a DATA that is too large",
            vec![Send(post(1)), Send(data(END_STREAM, 1, &[0; LARGEST + 1])), StreamError(1, SIZE)],
        ),
        Case("4.2", "HEADERS that are too large", vec![Send(large), ConnectionError(SIZE)]),
        Case(
            "4.3",
            "fields that cannot be decoded",
            vec![Send(frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x40")), ConnectionError(&[COMPRESSION_ERROR])],
        ),
        Case(
            "4.3",
            "PRIORITY amid a head",
            vec![Send(begun(1)), Send(priority(1, 0, 255)), Send(more(END_HEADERS, 1)), ConnectionError(PROTOCOL)],
        ),
        Case(
            "4.3",
            "HEADERS of another stream amid a head",
            vec![Send(begun(1)), Send(get(3)), Send(more(END_HEADERS, 1)), ConnectionError(PROTOCOL)],
        ),
    ]
}

fn kinds() -> Vec<Case> {
    let block = request("GET", "/");
    let longer_than_the_frame = [&[u8::try_from(block.len()).expect("short") + 2][..], &block].concat();
    let flags = END_STREAM | END_HEADERS;
    vec![
        Case("6.1", "DATA without a stream", vec![Send(data(END_STREAM, 0, b"test")), ConnectionError(PROTOCOL)]),
        Case(
            "6.1",
            "DATA behind the end",
            vec![Send(held(1)), Send(data(END_STREAM, 1, b"test")), StreamError(1, &[STREAM_CLOSED])],
        ),
        Case(
            "6.1",
            "DATA with more padding than there is room",
            vec![Send(post(1)), Send(data(END_STREAM | PADDED, 1, b"\x06Test")), ConnectionError(PROTOCOL)],
        ),
        Case("6.2", "HEADERS without a stream", vec![Send(get(0)), ConnectionError(PROTOCOL)]),
        Case(
            "6.2",
            "HEADERS with more padding than there is room",
            vec![Send(frame(HEADERS, flags | PADDED, 1, &longer_than_the_frame)), ConnectionError(PROTOCOL)],
        ),
        Case("6.3", "PRIORITY without a stream", vec![Send(priority(0, 1, 255)), ConnectionError(PROTOCOL)]),
        Case(
            "6.3",
            "PRIORITY of another length",
            vec![Send(post(1)), Send(frame(PRIORITY, 0, 1, b"\x80\0\0\x01")), StreamError(1, SIZE)],
        ),
        Case("6.4", "RST_STREAM without a stream", vec![Send(reset(0, CANCEL)), ConnectionError(PROTOCOL)]),
        Case("6.4", "RST_STREAM of an idle stream", vec![Send(reset(1, CANCEL)), ConnectionError(PROTOCOL)]),
        Case(
            "6.4",
            "RST_STREAM of another length",
            vec![Send(post(1)), Send(frame(RST_STREAM, 0, 1, b"\0\0\0")), ConnectionError(SIZE)],
        ),
    ]
}

fn connection_frames() -> Vec<Case> {
    let setting = |id, value| Send(settings(&[(id, value)]));
    let stray = frame(PING, ACK, 0, b"unasked!");
    vec![
        Case(
            "6.5",
            "an acknowledgement with settings",
            vec![Send(frame(SETTINGS, ACK, 0, b"\0")), ConnectionError(SIZE)],
        ),
        Case(
            "6.5",
            "SETTINGS of a stream",
            vec![Send(frame(SETTINGS, 0, 1, b"\0\x03\0\0\0\x64")), ConnectionError(PROTOCOL)],
        ),
        Case(
            "6.5",
            "SETTINGS of another length",
            vec![Send(frame(SETTINGS, 0, 0, b"\0\x03\0")), ConnectionError(SIZE)],
        ),
        Case("6.5.2", "ENABLE_PUSH of 2", vec![setting(2, 2), ConnectionError(PROTOCOL)]),
        Case("6.5.2", "INITIAL_WINDOW_SIZE of 2^31", vec![setting(4, 1 << 31), ConnectionError(&[FLOW_CONTROL_ERROR])]),
        Case("6.5.2", "MAX_FRAME_SIZE below the least", vec![setting(5, 16_383), ConnectionError(PROTOCOL)]),
        Case("6.5.2", "MAX_FRAME_SIZE above the most", vec![setting(5, 1 << 24), ConnectionError(PROTOCOL)]),
        Case("6.5.2", "an unknown setting", vec![setting(0xff, 1), Settled, Alive]),
        Case(
            "6.5.3",
            "settings count in their order",
            vec![Send(settings(&[(4, 100), (4, 1)])), Settled, Send(get(1)), Data(1, 1)],
        ),
        Case("6.5.3", "SETTINGS are acknowledged", vec![setting(3, 100), Settled]),
        Case("6.7", "PING is answered as it was", vec![Alive]),
        Case("6.7", "an answer to PING is not answered", vec![Send(stray), Alive]),
        Case("6.7", "PING of a stream", vec![Send(frame(PING, 0, 1, &[0; 8])), ConnectionError(PROTOCOL)]),
        Case("6.7", "PING of another length", vec![Send(frame(PING, 0, 0, &[0; 6])), ConnectionError(SIZE)]),
        Case("6.8", "GOAWAY of a stream", vec![Send(frame(GOAWAY, 0, 1, &[0; 8])), ConnectionError(PROTOCOL)]),
    ]
}

fn continuations() -> Vec<Case> {
    vec![
        Case(
            "6.2",
            "PRIORITY amid a head",
            vec![Send(begun(1)), Send(priority(1, 0, 255)), Send(more(END_HEADERS, 1)), ConnectionError(PROTOCOL)],
        ),
        Case(
            "6.2",
            "another stream's HEADERS amid a head",
            vec![Send(begun(1)), Send(begun(3)), Send(more(END_HEADERS, 1)), ConnectionError(PROTOCOL)],
        ),
        Case(
            "6.10",
            "CONTINUATION more than once",
            vec![Send(begun(1)), Send(more(0, 1)), Send(more(END_HEADERS, 1)), Answer(1)],
        ),
        Case(
            "6.10",
            "CONTINUATION and another frame",
            vec![Send(begun(1)), Send(more(0, 1)), Send(data(END_STREAM, 1, b"test")), ConnectionError(PROTOCOL)],
        ),
        Case(
            "6.10",
            "CONTINUATION without a stream",
            vec![Send(begun(1)), Send(more(END_HEADERS, 0)), ConnectionError(PROTOCOL)],
        ),
        Case(
            "6.10",
            "CONTINUATION of a whole head",
            vec![Send(held(1)), Send(more(END_HEADERS, 1)), ConnectionError(PROTOCOL)],
        ),
        Case(
            "6.10",
            "CONTINUATION behind the last",
            vec![Send(begun(1)), Send(more(END_HEADERS, 1)), Send(more(END_HEADERS, 1)), ConnectionError(PROTOCOL)],
        ),
        Case(
            "6.10",
            "CONTINUATION behind DATA",
            vec![
                Send(post(1)),
                Send(data(END_STREAM, 1, b"test")),
                Send(more(END_HEADERS, 1)),
                ConnectionError(PROTOCOL),
            ],
        ),
    ]
}
