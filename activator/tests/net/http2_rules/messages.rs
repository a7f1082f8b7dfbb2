//! RFC 9113, 7 and 8: error codes, fields, requests. RFC 7541: a header block that cannot be decoded ends the connection.

use super::wire::*;
use super::{Alive, AliveOrClosed, Case, GoAway, Step, StreamError, Success, case};

/// Returns a case: a GET with these fields, in this order, must cause a stream error.
fn malformed(section: &'static str, name: &'static str, fields: &[(&str, &str)]) -> Case {
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    case(section, name, [headers(1, &block)], refused())
}

fn refused() -> Step {
    StreamError(1, &[PROTOCOL_ERROR])
}

const METHOD: (&str, &str) = (":method", "GET");
const SCHEME: (&str, &str) = (":scheme", "http");
const PATH: (&str, &str) = (":path", "/");
const AUTHORITY: (&str, &str) = (":authority", "app.ns");

/// Returns a POST with a length.
fn sized(length: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, &[request("POST", "/"), field("content-length", length)].concat())
}

pub(super) fn cases() -> Vec<Case> {
    let pseudo_trailers = headers(1, &field(":method", "POST"));
    let open_trailers = frame(HEADERS, END_HEADERS, 1, &field("x-sum", "1"));
    let promise = frame(PUSH_PROMISE, END_HEADERS, 1, &[&[0, 0, 0, 3][..], &request("GET", "/")].concat());
    vec![
        case("7", "GOAWAY with an unknown code", [frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\xff")], AliveOrClosed),
        case("7", "RST_STREAM with an unknown code", [post(1), reset(1, 0xff)], Alive),
        case("8.1", "fields behind data without END_STREAM", [post(1), data(0, 1, b"test"), open_trailers], refused()),
        malformed("8.2.1", "a name in upper case", &[METHOD, SCHEME, PATH, AUTHORITY, ("X-TEST", "1")]),
        malformed("8.2.1", "a line break in a value", &[METHOD, SCHEME, PATH, AUTHORITY, ("x-test", "a\r\nb: c")]),
        malformed("8.2.2", "Connection", &[METHOD, SCHEME, PATH, AUTHORITY, ("connection", "keep-alive")]),
        malformed("8.2.2", "Transfer-Encoding", &[METHOD, SCHEME, PATH, AUTHORITY, ("transfer-encoding", "chunked")]),
        malformed("8.2.2", "TE beyond trailers", &[METHOD, SCHEME, PATH, AUTHORITY, ("te", "trailers, deflate")]),
        malformed("8.3", "an unknown pseudo-field", &[METHOD, SCHEME, PATH, AUTHORITY, (":test", "ok")]),
        malformed("8.3", "a response's pseudo-field", &[METHOD, SCHEME, PATH, AUTHORITY, (":status", "200")]),
        malformed("8.3", "a pseudo-field behind others", &[METHOD, SCHEME, AUTHORITY, ("x-test", "ok"), PATH]),
        // The RFC requires a stream error. `h2` drops the field and serves the rest, and no pod receives the field.
        case("8.3", "a pseudo-field among trailers", [post(1), data(0, 1, b"test"), pseudo_trailers], Success(1)),
        malformed("8.3.1", "an empty path", &[METHOD, SCHEME, (":path", ""), AUTHORITY]),
        malformed("8.3.1", "no method", &[SCHEME, PATH, AUTHORITY]),
        malformed("8.3.1", "no scheme", &[METHOD, PATH, AUTHORITY]),
        malformed("8.3.1", "no path", &[METHOD, SCHEME, AUTHORITY]),
        malformed("8.3.1", "two methods", &[METHOD, METHOD, SCHEME, PATH, AUTHORITY]),
        malformed("8.3.1", "two schemes", &[METHOD, SCHEME, SCHEME, PATH, AUTHORITY]),
        malformed("8.3.1", "two paths", &[METHOD, SCHEME, PATH, PATH, AUTHORITY]),
        malformed("8.3.1", "two authorities", &[METHOD, SCHEME, PATH, AUTHORITY, AUTHORITY]),
        case("8.1.1", "more data than its length", [sized("1"), last_data(1)], refused()),
        case("8.1.1", "more than its length, in parts", [sized("5"), data(0, 1, b"test"), last_data(1)], refused()),
        case("8.1.1", "less data than its length", [sized("9"), last_data(1)], refused()),
        case("8.4", "PUSH_PROMISE", [promise], GoAway(&[PROTOCOL_ERROR])),
    ]
}

pub(super) fn undecodable() -> Vec<Case> {
    let rows: [(&str, &str, &[u8]); 8] = [
        // 70 is beyond the static table, and the dynamic table is empty.
        ("2.3.3", "an index that is in no table", b"\xc6"),
        ("2.3.3", "a name that is in no table", b"\x7f\x07\x05value"),
        // After a field.
        ("4.2", "a change of the table's size at the end", b"\x20"),
        ("5.2", "Huffman's code with more than seven bits of padding", b"\x00\x04x-ab\x82\x1f\xff"),
        ("5.2", "Huffman's code that is padded by zeros", b"\x00\x04x-ab\x81\x18"),
        ("5.2", "Huffman's code with its EOS", b"\x00\x04x-ab\x84\xff\xff\xff\xff"),
        ("6.1", "the index 0", b"\x80"),
        ("6.3", "a table larger than was allowed", b"\x3f\xe2\x1f"),
    ];
    let row = |(section, name, bytes): (&'static str, &'static str, &[u8])| {
        // A change of the table's size is allowed only at the beginning.
        let block = if section == "6.3" {
            [bytes, &request("GET", "/")].concat()
        } else {
            [&request("GET", "/"), bytes].concat()
        };
        case(section, name, [headers(1, &block)], GoAway(&[COMPRESSION_ERROR]))
    };
    rows.into_iter().map(row).collect()
}
