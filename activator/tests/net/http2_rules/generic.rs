//! Input that every server must accept: each kind of frame, each form of a request, each encoding of a field.

use super::wire::*;
use super::{Alive, AliveOrClosed, Answer, BODY, Case, Data, End, Send, Settled};

/// Returns a GET with its fields in the shortest form, and `more` behind them.
fn with(more: &[&[u8]]) -> Vec<u8> {
    let block = [&[0x82, 0x86, 0x84, 0x01, 6][..], b"app.ns", &more.concat()].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, 1, &block)
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
    let padded_headers = [&[5][..], &block, &[0; 5]].concat();
    let headers_with_priority = [&[0, 0, 0, 0, 15][..], &block].concat();
    let trailers = frame(HEADERS, END_STREAM | END_HEADERS, 1, &field("x-sum", "1"));
    vec![
        Case("2", "PRIORITY on an idle stream", vec![Send(priority(1, 0, 255)), Alive]),
        Case(
            "2",
            "WINDOW_UPDATE on a half-closed stream",
            vec![no_window(), Settled, Send(get(1)), Answer(1), Send(window_update(1, 1)), Data(1, 1)],
        ),
        Case(
            "2",
            "PRIORITY on a half-closed stream",
            vec![no_window(), Settled, Send(get(1)), Send(priority(1, 0, 255)), Send(window_update(1, 1)), Data(1, 1)],
        ),
        Case("2", "RST_STREAM on a half-closed stream", vec![Send(held(1)), Send(reset(1, CANCEL)), Alive]),
        Case("2", "PRIORITY on a closed stream", vec![Send(get(1)), End(1), Send(priority(1, 0, 255)), Alive]),
        Case("3.1", "DATA", vec![Send(post(1)), Send(data(END_STREAM, 1, b"test")), Answer(1)]),
        Case(
            "3.1",
            "DATA twice",
            vec![Send(post(1)), Send(data(0, 1, b"test")), Send(data(END_STREAM, 1, b"test")), Answer(1)],
        ),
        Case(
            "3.1",
            "DATA with padding",
            vec![Send(post(1)), Send(data(END_STREAM | PADDED, 1, b"\x05test\0\0\0\0\0")), Answer(1)],
        ),
        Case("3.2", "HEADERS", vec![Send(get(1)), Answer(1)]),
        Case(
            "3.2",
            "HEADERS with padding",
            vec![Send(frame(HEADERS, END_STREAM | END_HEADERS | PADDED, 1, &padded_headers)), Answer(1)],
        ),
        Case(
            "3.2",
            "HEADERS with a priority",
            vec![Send(frame(HEADERS, END_STREAM | END_HEADERS | WITH_PRIORITY, 1, &headers_with_priority)), Answer(1)],
        ),
        Case("3.3", "PRIORITY with weight 1", vec![Send(priority(1, 0, 0)), Send(get(1)), Answer(1)]),
        Case("3.3", "PRIORITY with weight 256", vec![Send(priority(1, 0, 255)), Send(get(1)), Answer(1)]),
        Case("3.3", "PRIORITY with a dependency", vec![Send(priority(3, 1, 255)), Send(get(1)), Answer(1)]),
        Case("3.3", "PRIORITY, exclusive", vec![Send(priority(1, 0x8000_0000, 255)), Send(get(1)), Answer(1)]),
        Case("3.3", "PRIORITY on a higher idle stream", vec![Send(priority(3, 0, 255)), Send(get(1)), Answer(1)]),
        Case("3.4", "RST_STREAM", vec![Send(post(1)), Send(reset(1, CANCEL)), Alive]),
        Case(
            "3.5",
            "SETTINGS of every kind",
            vec![Send(settings(&[(1, 4096), (2, 0), (3, 100), (4, 65_535), (5, 16_384), (6, 100)])), Settled],
        ),
        Case("3.7", "PING", vec![Alive]),
        Case("3.8", "GOAWAY", vec![Send(frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0why")), AliveOrClosed]),
        Case("3.9", "WINDOW_UPDATE on the connection", vec![Send(window_update(0, 1)), Alive]),
        Case("3.9", "WINDOW_UPDATE on a stream", vec![Send(get(1)), Send(window_update(1, 1)), Answer(1)]),
        Case("3.10", "CONTINUATION", vec![Send(parts(&[5])), Answer(1)]),
        Case("3.10", "CONTINUATION twice", vec![Send(parts(&[5, 10])), Answer(1)]),
        Case("4", "GET", vec![Send(get(1)), Answer(1), Data(1, BODY.len())]),
        Case("4", "HEAD", vec![Send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &request("HEAD", "/"))), Answer(1)]),
        Case("4", "POST", vec![Send(post(1)), Send(data(END_STREAM, 1, b"test")), Answer(1)]),
        Case("4", "POST with trailers", vec![Send(post(1)), Send(data(0, 1, b"test")), Send(trailers), Answer(1)]),
        Case("5", "an indexed field", vec![Send(with(&[&[0x90]])), Answer(1)]),
        Case("5", "incremental, indexed name", vec![Send(with(&[&[0x53], VALUE])), Answer(1)]),
        Case("5", "incremental, indexed name, Huffman", vec![Send(with(&[&[0x53], HUFFMAN_VALUE])), Answer(1)]),
        Case("5", "incremental, new name", vec![Send(with(&[&[0x40], KEY, VALUE])), Answer(1)]),
        Case(
            "5",
            "incremental, new name, Huffman",
            vec![Send(with(&[&[0x40], HUFFMAN_KEY, HUFFMAN_VALUE])), Answer(1)],
        ),
        Case(
            "5",
            "incremental, and used again",
            vec![
                Send(with(&[&[0x40], KEY, VALUE])),
                Answer(1),
                Send(frame(HEADERS, END_STREAM | END_HEADERS, 3, &[&block[..], &[0xbe]].concat())),
                Answer(3),
            ],
        ),
        Case("5", "not indexed, indexed name", vec![Send(with(&[&[0x0f, 0x04], VALUE])), Answer(1)]),
        Case("5", "not indexed, indexed name, Huffman", vec![Send(with(&[&[0x0f, 0x04], HUFFMAN_VALUE])), Answer(1)]),
        Case("5", "not indexed, new name", vec![Send(with(&[&[0x00], KEY, VALUE])), Answer(1)]),
        Case(
            "5",
            "not indexed, new name, Huffman",
            vec![Send(with(&[&[0x00], HUFFMAN_KEY, HUFFMAN_VALUE])), Answer(1)],
        ),
        Case("5", "never indexed, indexed name", vec![Send(with(&[&[0x1f, 0x04], VALUE])), Answer(1)]),
        Case("5", "never indexed, indexed name, Huffman", vec![Send(with(&[&[0x1f, 0x04], HUFFMAN_VALUE])), Answer(1)]),
        Case("5", "never indexed, new name", vec![Send(with(&[&[0x10], KEY, VALUE])), Answer(1)]),
        Case(
            "5",
            "never indexed, new name, Huffman",
            vec![Send(with(&[&[0x10], HUFFMAN_KEY, HUFFMAN_VALUE])), Answer(1)],
        ),
        Case(
            "5",
            "a change of the table's size",
            vec![Send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &[&[0x20][..], &block].concat())), Answer(1)],
        ),
        Case(
            "5",
            "two changes of the table's size",
            vec![
                Send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &[&[0x20, 0x3f, 0xe1, 0x1f][..], &block].concat())),
                Answer(1),
            ],
        ),
    ]
}
