//! RFC 7541: a header block that cannot be decoded ends the connection.

use super::wire::*;
use super::{Case, GoAway};

pub(super) fn cases() -> Vec<Case> {
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
    let case = |(section, name, bytes): (&'static str, &'static str, &[u8])| {
        // A change of the table's size is allowed only at the beginning.
        let block = if section == "6.3" {
            [bytes, &request("GET", "/")].concat()
        } else {
            [&request("GET", "/"), bytes].concat()
        };
        super::case(section, name, [headers(1, &block)], GoAway(&[COMPRESSION_ERROR]))
    };
    rows.into_iter().map(case).collect()
}
