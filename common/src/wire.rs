//! Encodes and decodes the stat stream: [`prost`]'s encoding of [`crate::stat`].
//!
//! Encoding writes fields in ascending order and omits zeros. An entry's stat is written even if all its fields are
//! zero.
//!
//! Decoding follows upstream's generated code. Fields come in any order. The last value of a repeated scalar counts.
//! Repeated stats of one entry are merged into the first. Unknown fields are skipped, groups as a whole. Damage
//! anywhere invalidates the whole frame.
//!
//! Two kinds of frames that upstream accepts are rejected here, and no known writer sends them: names that are not
//! UTF-8, and varints with bits beyond the 64th.

use crate::stat::{Stat, WireStatMessage, WireStatMessages};
pub use prost::DecodeError;
use prost::Message;

/// Encodes one frame.
pub fn encode(messages: &WireStatMessages) -> Vec<u8> {
    messages.encode_to_vec()
}

/// Creates an attestation: an entry that only says that the activator is connected. See [`crate::stat`].
pub fn attestation(system_namespace: &str, pod_name: &str) -> WireStatMessage {
    WireStatMessage { namespace: system_namespace.to_owned(), name: pod_name.to_owned(), ..WireStatMessage::default() }
}

/// Decodes one frame of the stat stream. Fails if the bytes are damaged. No part of the frame counts then.
pub fn decode(bytes: &[u8]) -> Result<WireStatMessages, DecodeError> {
    WireStatMessages::decode(bytes)
}

/// Decodes the response to a scrape. Fails if the bytes are damaged.
pub fn decode_stat(bytes: &[u8]) -> Result<Stat, DecodeError> {
    Stat::decode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::{Observations, ObservedWake};

    /// Recorded vectors (kinds `wire` and `wire_decode`) cover frames, and damage to them.
    #[test]
    fn a_scrape_has_the_same_bytes_as_upstream_and_an_attestation_has_no_stat() {
        let stat = "0a017011000000000000f03f19000000000000e03f21000000000000004029000000000000f03f310000000000001440";
        let read = decode_stat(&hex::decode(stat).expect("hex")).expect("a stat");
        assert_eq!((read.pod_name.as_str(), read.process_uptime, read.timestamp), ("p", 5.0, 0));
        assert_eq!(hex::encode(read.encode_to_vec()), stat);
        let frame = WireStatMessages { messages: vec![attestation("knative-serving", "activator-0")] };
        let read = decode(&encode(&frame)).expect("a frame");
        assert_eq!((&read, &read.messages[0].stat), (&frame, &None));
    }

    /// Goal: a reader that knows only upstream's three fields reads them unchanged.
    #[test]
    fn upstreams_reader_skips_zeroscales_extensions() {
        #[derive(Clone, PartialEq, Message)]
        struct UpstreamMessage {
            #[prost(string, tag = "1")]
            namespace: String,
            #[prost(string, tag = "2")]
            name: String,
            #[prost(message, optional, tag = "3")]
            stat: Option<Stat>,
        }
        let stat = Stat { pod_name: "act".into(), average_concurrent_requests: 1.0, ..Stat::default() };
        let mut message = WireStatMessage { stat: Some(stat), ..attestation("ns", "rev") };
        let plain = message.encode_to_vec();
        let wake = ObservedWake { start_us: 5_000, failed: "timeout".into(), ..ObservedWake::default() };
        message.observations =
            Some(Box::new(Observations { held: 7, wakes: vec![wake], silent: vec![25], pod_speaks_first: vec![3306] }));
        let bytes = message.encode_to_vec();
        assert_eq!(WireStatMessage::decode(bytes.as_slice()), Ok(message.clone()));
        let read = UpstreamMessage::decode(bytes.as_slice()).expect("upstream's reader");
        assert_eq!(read.encode_to_vec(), plain);
    }

    /// Rows: bytes of one entry, then the decoded name and concurrency.
    #[test]
    fn unusual_encodings_are_accepted_as_by_upstream() {
        let good = [
            ("", ("", None)),
            ("1a00", ("", Some(0.0))),
            ("120161 120162", ("b", None)),                    // The last name counts.
            ("1a09 11000000000000f03f 1a00", ("", Some(1.0))), // Stats merge.
            ("120161 20ffffffffffffffffff01", ("a", None)),    // A ten-byte varint of an unknown field.
            ("23 0801 2b 2c 24 120161", ("a", None)),          // Nested groups.
            ("1281808000 61", ("a", None)),                    // A length that is not minimally encoded.
        ];
        for (bytes, (name, concurrency)) in good {
            let wire = hex::decode(bytes.replace(' ', "")).expect("hex");
            let entry = WireStatMessage::decode(wire.as_slice()).expect(bytes);
            let found = (entry.name.as_str(), entry.stat.map(|stat| stat.average_concurrent_requests));
            assert_eq!(found, (name, concurrency), "{bytes}");
        }
    }
}
