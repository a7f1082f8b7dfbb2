//! Frames of a session between two activators, and their encoding.
//!
//! The side that opened the session sends its address and a token; the other side replies with its own address. After
//! that each side sends its [report](super::sharing_mode) whenever that changes, a beat every [`BEAT`](super::BEAT),
//! and messages about holders ([`super::message`]). Frames of unknown kinds are skipped.

use prost::Message as _;

use super::Beat;
use super::message::WorkloadMessage;
use super::sharing_mode::SharingReport;

/// Version of the protocol. Sessions of different versions are not opened.
pub const VERSION: u32 = 1;
/// Maximum size of a frame: one that lists requests on some ten thousand pods.
pub const FRAME_MAX: usize = 512 * 1024;
/// Maximum size of a token, as for stats.
pub const TOKEN_MAX: usize = 16 * 1024;

/// Frame of a session.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Frame {
    /// First frame of either side.
    #[prost(message, tag = "1")]
    Hello(Hello),
    /// Sign of life.
    #[prost(message, tag = "2")]
    Beat(Beat),
    /// State of the sender from now on.
    #[prost(message, tag = "3")]
    Report(SharingReport),
    /// Message about one workload.
    #[prost(message, tag = "4")]
    Holder(WorkloadMessage),
}

/// Introduction of one side.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    /// Version of the protocol: [`VERSION`].
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Address of the sender.
    #[prost(string, tag = "2")]
    pub from: String,
    /// Token that proves the address. Sent only by the side that opened the session, and only if one is required.
    #[prost(string, optional, tag = "3")]
    pub token: Option<String>,
    /// Key that marks requests relayed to the sender.
    #[prost(string, tag = "4")]
    pub key: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Wire {
    #[prost(oneof = "Frame", tags = "1, 2, 3, 4")]
    frame: Option<Frame>,
}

/// Reason why bytes are not a valid frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The frame is damaged.
    #[error("a frame between activators is damaged: {0}")]
    Damaged(#[from] prost::DecodeError),
    /// The token is too long.
    #[error("a token has {0} bytes, more than the maximum of {TOKEN_MAX}")]
    TokenTooLong(usize),
}

impl Frame {
    /// Encodes the frame.
    pub fn into_bytes(self) -> Vec<u8> {
        Wire { frame: Some(self) }.encode_to_vec()
    }

    /// Decodes a frame. Returns `None` if its kind is unknown.
    ///
    /// # Errors
    /// The bytes are damaged, or a token is too long.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, SessionError> {
        match Wire::decode(bytes)?.frame {
            Some(Self::Hello(Hello { token: Some(token), .. })) if token.len() > TOKEN_MAX => {
                Err(SessionError::TokenTooLong(token.len()))
            }
            frame => Ok(frame),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Goal: bytes from outside are rejected or decoded, and never cause a panic.
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Frame::decode(&bytes);
            let _ = WorkloadMessage::decode(&*bytes).map(WorkloadMessage::into_parts);
        }
    }

    #[test]
    fn frames_of_unknown_kinds_are_skipped_and_long_tokens_are_rejected() {
        assert_eq!(Frame::decode(&[0x4a, 1, 7]), Ok(None));
        let token = Some("x".repeat(TOKEN_MAX + 1));
        let hello = Frame::Hello(Hello { version: VERSION, from: "a".into(), token, key: String::new() });
        assert_eq!(Frame::decode(&hello.into_bytes()), Err(SessionError::TokenTooLong(TOKEN_MAX + 1)));
    }
}
