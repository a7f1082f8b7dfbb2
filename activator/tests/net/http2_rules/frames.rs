//! RFC 9113, 3, 4 and 6: the kinds of frames, and their errors.

use super::wire::*;
use super::{Alive, Case, Data, GoAway, Send, Settled, StreamError, Success, case};

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
    [formats_and_kinds(), connection_frames()].into_iter().flatten().collect()
}

fn formats_and_kinds() -> Vec<Case> {
    let block = request("GET", "/");
    let padding = u8::try_from(block.len()).expect("short") + 2;
    let too_much_padding = frame(HEADERS, END_STREAM | END_HEADERS | PADDED, 1, &[&[padding][..], &block].concat());
    let with_reserved_bit = frame(PING, 0x16, 0x8000_0000, b"reserved");
    let mut undefined_flags = ping();
    undefined_flags[4] = 0x16;
    let large = headers(1, &vec![0; LARGEST + 1]);
    vec![
        Case("3.4", "settings are acknowledged", vec![Send(settings(&[])), Settled, Alive]),
        case("4.1", "a frame of an unknown kind", [frame(0x16, 0, 0, &[0; 8])], Alive),
        case("4.1", "unknown flags", [undefined_flags], Alive),
        case("4.1", "the reserved bit", [with_reserved_bit], Alive),
        case("4.2", "the largest DATA", [post(1), data(END_STREAM, 1, &[0; LARGEST])], Success(1)),
        case("4.2", "DATA that are too large", [post(1), data(END_STREAM, 1, &[0; LARGEST + 1])], StreamError(1, SIZE)),
        case("4.2", "HEADERS that are too large", [large], GoAway(SIZE)),
        case("4.3", "fields that cannot be decoded", [headers(1, b"\x40")], GoAway(&[COMPRESSION_ERROR])),
        case("4.3", "HEADERS of stream 3 amid a head", [begun(1), get(3), more(END_HEADERS, 1)], GoAway(PROTOCOL)),
        case("6.1", "DATA without a stream", [last_data(0)], GoAway(PROTOCOL)),
        case("6.1", "too much padding", [post(1), data(END_STREAM | PADDED, 1, b"\x06Test")], GoAway(PROTOCOL)),
        case("6.2", "HEADERS without a stream", [get(0)], GoAway(PROTOCOL)),
        case("6.2", "HEADERS with too much padding", [too_much_padding], GoAway(PROTOCOL)),
        case("6.3", "PRIORITY without a stream", [priority(0, 1, 255)], GoAway(PROTOCOL)),
        case("6.3", "PRIORITY of length 4", [post(1), frame(PRIORITY, 0, 1, b"\x80\0\0\x01")], StreamError(1, SIZE)),
        case("6.4", "RST_STREAM without a stream", [reset(0, CANCEL)], GoAway(PROTOCOL)),
        case("6.4", "RST_STREAM of length 3", [post(1), frame(RST_STREAM, 0, 1, b"\0\0\0")], GoAway(SIZE)),
    ]
}

fn connection_frames() -> Vec<Case> {
    let setting = |id, value| Send(settings(&[(id, value)]));
    let (stray, last) = (frame(PING, ACK, 0, b"unasked!"), more(END_HEADERS, 1));
    vec![
        case("6.5", "an acknowledgement with settings", [frame(SETTINGS, ACK, 0, b"\0")], GoAway(SIZE)),
        case("6.5", "SETTINGS of a stream", [frame(SETTINGS, 0, 1, b"\0\x03\0\0\0\x64")], GoAway(PROTOCOL)),
        case("6.5", "SETTINGS of length 3", [frame(SETTINGS, 0, 0, b"\0\x03\0")], GoAway(SIZE)),
        Case("6.5.2", "ENABLE_PUSH of 2", vec![setting(2, 2), GoAway(PROTOCOL)]),
        Case("6.5.2", "INITIAL_WINDOW_SIZE of 2^31", vec![setting(4, 1 << 31), GoAway(&[FLOW_CONTROL_ERROR])]),
        Case("6.5.2", "MAX_FRAME_SIZE below the minimum", vec![setting(5, 16_383), GoAway(PROTOCOL)]),
        Case("6.5.2", "MAX_FRAME_SIZE above the maximum", vec![setting(5, 1 << 24), GoAway(PROTOCOL)]),
        Case("6.5.2", "an unknown setting", vec![setting(0xff, 1), Settled, Alive]),
        Case(
            "6.5.3",
            "settings in order",
            vec![Send(settings(&[(4, 100), (4, 1)])), Settled, Send(get(1)), Data(1, 1)],
        ),
        case("6.7", "a response to PING gets none", [stray], Alive),
        case("6.7", "PING of a stream", [frame(PING, 0, 1, &[0; 8])], GoAway(PROTOCOL)),
        case("6.7", "PING of length 6", [frame(PING, 0, 0, &[0; 6])], GoAway(SIZE)),
        case("6.8", "GOAWAY of a stream", [frame(GOAWAY, 0, 1, &[0; 8])], GoAway(PROTOCOL)),
        case("6.2", "PRIORITY amid a head", [begun(1), priority(1, 0, 255), more(END_HEADERS, 1)], GoAway(PROTOCOL)),
        case("6.2", "HEADERS of stream 3 amid a head", [begun(1), begun(3), more(END_HEADERS, 1)], GoAway(PROTOCOL)),
        case("6.10", "CONTINUATION more than once", [begun(1), more(0, 1), more(END_HEADERS, 1)], Success(1)),
        case("6.10", "CONTINUATION and another frame", [begun(1), more(0, 1), last_data(1)], GoAway(PROTOCOL)),
        case("6.10", "CONTINUATION without a stream", [begun(1), more(END_HEADERS, 0)], GoAway(PROTOCOL)),
        case("6.10", "CONTINUATION of a whole head", [held(1), more(END_HEADERS, 1)], GoAway(PROTOCOL)),
        case("6.10", "CONTINUATION after the last", [begun(1), last.clone(), last], GoAway(PROTOCOL)),
        case("6.10", "CONTINUATION behind DATA", [post(1), last_data(1), more(END_HEADERS, 1)], GoAway(PROTOCOL)),
    ]
}
