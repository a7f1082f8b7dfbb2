//! Input that every server must accept: each kind of frame, each form of a request, each encoding of a field.

use super::wire::*;
use super::{Alive, AliveOrClosed, BODY, Case, Data, End, Send, Settled, Success, case};

/// Returns a GET with its fields in the shortest form, and `more` behind them.
fn with(more: &[&[u8]]) -> Vec<u8> {
    let block = [&[0x82, 0x86, 0x84, 0x01, 6][..], b"app.ns", &more.concat()].concat();
    headers(1, &block)
}

/// RFC 7541, C.4: `custom-key` and `custom-value` in Huffman code.
const HUFFMAN_KEY: &[u8] = b"\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f";
const HUFFMAN_VALUE: &[u8] = b"\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf";
const KEY: &[u8] = b"\x0acustom-key";
const VALUE: &[u8] = b"\x0ccustom-value";

pub(super) fn cases() -> Vec<Case> {
    let block = request("GET", "/");
    let no_window = || Send(settings(&[(4, 0)]));
    let parts = |at: &[usize]| -> Vec<u8> {
        let mut frames = frame(HEADERS, END_STREAM, 1, &block[..at[0]]);
        for (n, from) in at.iter().enumerate() {
            let (to, flags) = at.get(n + 1).map_or((block.len(), END_HEADERS), |to| (*to, 0));
            frames.extend(frame(CONTINUATION, flags, 1, &block[*from..to]));
        }
        frames
    };
    let flags = END_STREAM | END_HEADERS;
    let padded = frame(HEADERS, flags | PADDED, 1, &[&[5][..], &block, &[0; 5]].concat());
    let with_priority = frame(HEADERS, flags | WITH_PRIORITY, 1, &[&[0, 0, 0, 0, 15][..], &block].concat());
    let all_settings = settings(&[(1, 4096), (2, 0), (3, 100), (4, 65_535), (5, 16_384), (6, 100)]);
    let two_updates = [&[0x20, 0x3f, 0xe1, 0x1f][..], &block].concat();
    let trailers = headers(1, &field("x-sum", "1"));
    vec![
        case("2", "PRIORITY on an idle stream", [priority(1, 0, 255)], Alive),
        Case(
            "2",
            "WINDOW_UPDATE on a half-closed stream",
            vec![no_window(), Settled, Send(get(1)), Success(1), Send(window_update(1, 1)), Data(1, 1)],
        ),
        Case(
            "2",
            "PRIORITY on a half-closed stream",
            vec![no_window(), Settled, Send(get(1)), Send(priority(1, 0, 255)), Send(window_update(1, 1)), Data(1, 1)],
        ),
        case("2", "RST_STREAM on a half-closed stream", [held(1), reset(1, CANCEL)], Alive),
        Case("2", "PRIORITY on a closed stream", vec![Send(get(1)), End(1), Send(priority(1, 0, 255)), Alive]),
        case("3.1", "DATA", [post(1), last_data(1)], Success(1)),
        case("3.1", "DATA twice", [post(1), data(0, 1, b"test"), last_data(1)], Success(1)),
        case("3.1", "DATA with padding", [post(1), data(END_STREAM | PADDED, 1, b"\x05test\0\0\0\0\0")], Success(1)),
        case("3.2", "HEADERS with padding", [padded], Success(1)),
        case("3.2", "HEADERS with a priority", [with_priority], Success(1)),
        case("3.3", "PRIORITY with weight 1", [priority(1, 0, 0), get(1)], Success(1)),
        case("3.3", "PRIORITY with weight 256", [priority(1, 0, 255), get(1)], Success(1)),
        case("3.3", "PRIORITY with a dependency", [priority(3, 1, 255), get(1)], Success(1)),
        case("3.3", "PRIORITY, exclusive", [priority(1, 0x8000_0000, 255), get(1)], Success(1)),
        case("3.3", "PRIORITY on a higher idle stream", [priority(3, 0, 255), get(1)], Success(1)),
        case("3.4", "RST_STREAM", [post(1), reset(1, CANCEL)], Alive),
        case("3.5", "SETTINGS of every kind", [all_settings], Settled),
        case("3.7", "PING", [], Alive),
        case("3.8", "GOAWAY", [frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0why")], AliveOrClosed),
        case("3.9", "WINDOW_UPDATE on the connection", [window_update(0, 1)], Alive),
        case("3.9", "WINDOW_UPDATE on a stream", [get(1), window_update(1, 1)], Success(1)),
        case("3.10", "CONTINUATION", [parts(&[5])], Success(1)),
        case("3.10", "CONTINUATION twice", [parts(&[5, 10])], Success(1)),
        Case("4", "GET", vec![Send(get(1)), Success(1), Data(1, BODY.len())]),
        case("4", "HEAD", [headers(1, &request("HEAD", "/"))], Success(1)),
        case("4", "POST with trailers", [post(1), data(0, 1, b"test"), trailers], Success(1)),
        case("5", "an indexed field", [with(&[&[0x90]])], Success(1)),
        case("5", "incremental, indexed name", [with(&[&[0x53], VALUE])], Success(1)),
        case("5", "incremental, indexed name, Huffman", [with(&[&[0x53], HUFFMAN_VALUE])], Success(1)),
        case("5", "incremental, new name", [with(&[&[0x40], KEY, VALUE])], Success(1)),
        case("5", "incremental, new name, Huffman", [with(&[&[0x40], HUFFMAN_KEY, HUFFMAN_VALUE])], Success(1)),
        Case(
            "5",
            "incremental, and used again",
            vec![
                Send(with(&[&[0x40], KEY, VALUE])),
                Success(1),
                Send(headers(3, &[&block[..], &[0xbe]].concat())),
                Success(3),
            ],
        ),
        case("5", "not indexed, indexed name", [with(&[&[0x0f, 0x04], VALUE])], Success(1)),
        case("5", "not indexed, indexed name, Huffman", [with(&[&[0x0f, 0x04], HUFFMAN_VALUE])], Success(1)),
        case("5", "not indexed, new name", [with(&[&[0x00], KEY, VALUE])], Success(1)),
        case("5", "not indexed, new name, Huffman", [with(&[&[0x00], HUFFMAN_KEY, HUFFMAN_VALUE])], Success(1)),
        case("5", "never indexed, indexed name", [with(&[&[0x1f, 0x04], VALUE])], Success(1)),
        case("5", "never indexed, indexed name, Huffman", [with(&[&[0x1f, 0x04], HUFFMAN_VALUE])], Success(1)),
        case("5", "never indexed, new name", [with(&[&[0x10], KEY, VALUE])], Success(1)),
        case("5", "never indexed, new name, Huffman", [with(&[&[0x10], HUFFMAN_KEY, HUFFMAN_VALUE])], Success(1)),
        case("5", "a change of the table's size", [headers(1, &[&[0x20][..], &block].concat())], Success(1)),
        case("5", "two changes of the table's size", [headers(1, &two_updates)], Success(1)),
    ]
}
