//! The stat stream's bytes.
//!
//! Encoding is [`prost`]'s: ascending fields, zeros left out, an entry's stat written even where all of it is zero.
//! Decoding is our own, because it must accept and refuse what upstream's generated code does, and prost is stricter
//! (strings that are not UTF-8, the last byte of a long varint):
//!
//! - Fields come in any order. Of a repeated scalar the last counts; a repeated stat of one entry merges into the
//!   first.
//! - Unknown fields of every wire type are skipped, groups as a whole, whatever ends them.
//! - The whole frame fails on a known field of another wire type, on field numbers below 1, on an end of a group that
//!   did not start, on wire types 6 and 7, on varints of more than ten bytes, and on anything that reaches beyond the
//!   message that holds it.
//! - Strings that are not UTF-8 have the bad parts replaced; upstream keeps the bytes, which name nothing either.
//!
//! Depth is bounded: messages nest three deep, groups are counted and not recursed into.

mod cursor;

use crate::stat::{Stat, WireStatMessage, WireStatMessages};
use cursor::{Cursor, END_GROUP, FIXED64, LENGTH_DELIMITED, VARINT};
use prost::Message;

/// Bytes that are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A value reaches beyond its message.
    #[error("a value reaches beyond the end of its message")]
    UnexpectedEnd,
    /// A varint of more than ten bytes.
    #[error("a varint has more than ten bytes")]
    VarintTooLong,
    /// A length that is negative as a signed number.
    #[error("a length is negative")]
    NegativeLength,
    /// A field number below 1.
    #[error("field number {0} is not positive")]
    FieldNumber(i32),
    /// A known field with a wire type that it does not have.
    #[error("field {field} of {message} has wire type {wire_type}")]
    WireType {
        /// Name of the message.
        message: &'static str,
        /// Number of the field.
        field: i32,
        /// The wire type found.
        wire_type: u8,
    },
    /// An end of a group without its start.
    #[error("a group ends that did not start")]
    EndGroup,
    /// Wire types 6 and 7.
    #[error("wire type {0} does not exist")]
    UnknownWireType(u8),
}

/// The bytes of one frame.
pub fn encode(messages: &WireStatMessages) -> Vec<u8> {
    messages.encode_to_vec()
}

/// An entry that says nothing but "I am here and connected": see [`crate::stat`].
pub fn attestation(system_namespace: &str, pod_name: &str) -> WireStatMessage {
    WireStatMessage { namespace: system_namespace.to_owned(), name: pod_name.to_owned(), stat: None }
}

/// Reads one frame of the stat stream.
///
/// # Errors
/// Where upstream's decoder fails; nothing of the frame counts then.
pub fn decode(bytes: &[u8]) -> Result<WireStatMessages, DecodeError> {
    let mut frame = WireStatMessages::default();
    each_field(bytes, |field, wire_type, cursor| {
        if field != 1 {
            return Ok(Taken::Unknown);
        }
        let bytes = expect_bytes("WireStatMessages", field, wire_type, cursor)?;
        frame.messages.push(decode_entry(bytes)?);
        Ok(Taken::Known)
    })?;
    Ok(frame)
}

/// Reads the answer to a scrape.
///
/// # Errors
/// Where upstream's decoder fails.
pub fn decode_stat(bytes: &[u8]) -> Result<Stat, DecodeError> {
    let mut stat = Stat::default();
    merge_stat(&mut stat, bytes)?;
    Ok(stat)
}

fn decode_entry(bytes: &[u8]) -> Result<WireStatMessage, DecodeError> {
    let mut entry = WireStatMessage::default();
    each_field(bytes, |field, wire_type, cursor| {
        if !(1..=3).contains(&field) {
            return Ok(Taken::Unknown);
        }
        let bytes = expect_bytes("WireStatMessage", field, wire_type, cursor)?;
        match field {
            1 => entry.namespace = text(bytes),
            2 => entry.name = text(bytes),
            _ => merge_stat(entry.stat.get_or_insert_default(), bytes)?,
        }
        Ok(Taken::Known)
    })?;
    Ok(entry)
}

fn merge_stat(stat: &mut Stat, bytes: &[u8]) -> Result<(), DecodeError> {
    each_field(bytes, |field, wire_type, cursor| {
        let double = match field {
            1 => {
                stat.pod_name = text(expect_bytes("Stat", field, wire_type, cursor)?);
                return Ok(Taken::Known);
            }
            2 => &mut stat.average_concurrent_requests,
            3 => &mut stat.average_proxied_concurrent_requests,
            4 => &mut stat.request_count,
            5 => &mut stat.proxied_request_count,
            6 => &mut stat.process_uptime,
            7 => {
                expect_wire_type("Stat", field, wire_type, VARINT)?;
                stat.timestamp = cursor.varint()?.cast_signed();
                return Ok(Taken::Known);
            }
            _ => return Ok(Taken::Unknown),
        };
        expect_wire_type("Stat", field, wire_type, FIXED64)?;
        *double = f64::from_le_bytes(cursor.array()?);
        Ok(Taken::Known)
    })
}

/// What a field's reader did with it.
enum Taken {
    Known,
    Unknown,
}

/// Calls `read` with number and wire type of each field; skips those that it does not know.
fn each_field(
    bytes: &[u8],
    mut read: impl FnMut(i32, u8, &mut Cursor<'_>) -> Result<Taken, DecodeError>,
) -> Result<(), DecodeError> {
    let mut cursor = Cursor(bytes);
    while !cursor.0.is_empty() {
        let start = cursor;
        let tag = cursor.varint()?;
        let (field, wire_type) = ((tag >> 3) as i32, (tag & 7) as u8); // Upstream cuts field numbers to 32 bits.
        if wire_type == END_GROUP {
            return Err(DecodeError::EndGroup);
        }
        if field <= 0 {
            return Err(DecodeError::FieldNumber(field));
        }
        if let Taken::Unknown = read(field, wire_type, &mut cursor)? {
            cursor = start;
            cursor.skip_field()?;
        }
    }
    Ok(())
}

fn expect_wire_type(message: &'static str, field: i32, wire_type: u8, expected: u8) -> Result<(), DecodeError> {
    if wire_type == expected { Ok(()) } else { Err(DecodeError::WireType { message, field, wire_type }) }
}

fn expect_bytes<'a>(
    message: &'static str,
    field: i32,
    wire_type: u8,
    cursor: &mut Cursor<'a>,
) -> Result<&'a [u8], DecodeError> {
    expect_wire_type(message, field, wire_type, LENGTH_DELIMITED)?;
    cursor.bytes()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> WireStatMessages {
        let stat =
            Stat { pod_name: "act".into(), average_concurrent_requests: 1.0, request_count: 1.0, ..Stat::default() };
        WireStatMessages {
            messages: vec![WireStatMessage { namespace: "ns".into(), name: "rev".into(), stat: Some(stat) }],
        }
    }

    #[test]
    fn bytes_are_upstreams() {
        let bytes = hex::decode("0a220a026e7312037265761a170a0361637411000000000000f03f21000000000000f03f");
        assert_eq!(bytes.as_deref(), Ok(encode(&sample()).as_slice()));
        assert_eq!(decode(&encode(&sample())), Ok(sample()));
        let stat = "0a017011000000000000f03f19000000000000e03f21000000000000004029000000000000f03f310000000000001440";
        let read = decode_stat(&hex::decode(stat).expect("hex")).expect("a stat");
        assert_eq!((read.pod_name.as_str(), read.process_uptime, read.timestamp), ("p", 5.0, 0));
        assert_eq!(hex::encode(read.encode_to_vec()), stat);
    }

    #[test]
    fn an_attestation_has_no_stat() {
        let frame = WireStatMessages { messages: vec![attestation("knative-serving", "activator-0")] };
        let read = decode(&encode(&frame)).expect("a frame");
        assert_eq!(read, frame);
        assert_eq!(read.messages[0].stat, None);
    }

    /// One entry's bytes; what they mean.
    #[test]
    fn leniency_is_upstreams() {
        let good = [
            ("", ("", None)),
            ("1a00", ("", Some(0.0))),
            ("120161 120162", ("b", None)),                    // The last name counts.
            ("1a09 11000000000000f03f 1a00", ("", Some(1.0))), // Stats merge.
            ("120161 20ffffffffffffffffff7f", ("a", None)),    // Ten bytes of an unknown varint.
            ("23 0801 2b 2c 24 120161", ("a", None)),          // Groups within groups.
            ("9280808080 01 01 61", ("a", None)),              // A field number of 33 bits is cut to 2.
            ("1281808000 61", ("a", None)),                    // A length that is not minimal.
        ];
        for (bytes, (name, concurrency)) in good {
            let entry = decode_entry(&hex::decode(bytes.replace(' ', "")).expect("hex")).expect(bytes);
            let found = (entry.name.as_str(), entry.stat.map(|stat| stat.average_concurrent_requests));
            assert_eq!(found, (name, concurrency), "{bytes}");
        }
        let lossy = decode_entry(&[0x12, 2, b'a', 0xff]).expect("not UTF-8 is no error");
        assert_eq!(lossy.name, "a\u{fffd}");
    }

    #[test]
    fn damage_fails_the_frame() {
        let bad = [
            ("1005", DecodeError::WireType { message: "WireStatMessage", field: 2, wire_type: 0 }),
            ("00", DecodeError::FieldNumber(0)),
            ("2c", DecodeError::EndGroup),
            ("26", DecodeError::UnknownWireType(6)),
            ("27", DecodeError::UnknownWireType(7)),
            ("20ffffffffffffffffffff01", DecodeError::VarintTooLong),
            ("12ffffffffffffffffff01", DecodeError::NegativeLength),
            ("120261", DecodeError::UnexpectedEnd),
            ("23", DecodeError::UnexpectedEnd),
            ("210000", DecodeError::UnexpectedEnd),
            ("1a0211", DecodeError::UnexpectedEnd),
        ];
        for (bytes, error) in bad {
            assert_eq!(decode_entry(&hex::decode(bytes).expect("hex")), Err(error), "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
            let _ = decode_stat(&bytes);
        }

        /// Whatever prost reads, this reads, and the same.
        #[test]
        fn what_prost_accepts_is_accepted(bytes in prop::collection::vec(
            prop::sample::select(vec![0, 1, 2, 8, 9, 0x0a, 0x11, 0x12, 0x1a, 0x21, 0x23, 0x24, 0x38, 0x80, 0xff]), 0..24))
        {
            if let Ok(read) = WireStatMessages::decode(bytes.as_slice()) {
                prop_assert_eq!(decode(&bytes), Ok(read));
            }
        }

        #[test]
        fn frames_survive(name in ".{0,20}", values in any::<[i32; 5]>(), timestamp in any::<i64>()) {
            let [a, b, c, d, e] = values.map(f64::from);
            let stat = Stat {
                pod_name: name.clone(),
                average_concurrent_requests: a,
                average_proxied_concurrent_requests: b,
                request_count: c,
                proxied_request_count: d,
                process_uptime: e,
                timestamp,
            };
            let messages = vec![WireStatMessage { namespace: name.clone(), name, stat: Some(stat) }];
            let frame = WireStatMessages { messages };
            prop_assert_eq!(decode(&encode(&frame)), Ok(frame));
        }
    }
}
