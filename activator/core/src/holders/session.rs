//! Frames of a session between two activators, and their encoding.
//!
//! The side that opened the session sends its address and a token; the other side replies with its own address. After
//! that each side sends its [standing](super::standing) whenever that changes, a beat every [`BEAT`](super::BEAT), and
//! messages about holders ([`super::message`]). Frames of unknown kinds are skipped.

use std::time::Duration;

use prost::Message as _;

use super::standing::Says;
use super::{Beat, Peer};

/// Version of the protocol. Sessions of different versions are not opened.
pub const VERSION: u32 = 1;
/// Maximum size of a frame: one that lists requests on some ten thousand pods.
pub const FRAME_MAX: usize = 512 * 1024;
/// Maximum size of a token, as for stats.
pub const TOKEN_MAX: usize = 16 * 1024;

/// Frame of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// First frame of either side.
    Hello {
        /// Version of the protocol: [`VERSION`].
        version: u32,
        /// Address of the sender.
        from: Peer,
        /// Token that proves the address. Sent only by the side that opened the session, and only if one is required.
        token: Option<String>,
        /// Key that marks requests relayed to the sender.
        key: String,
    },
    /// Sign of life.
    Beat(Beat),
    /// State of the sender from now on.
    Says(Says),
    /// Message about one workload: [`super::message::encode`].
    Holder(Vec<u8>),
}

/// Reason why bytes are not a valid frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The frame is damaged.
    #[error("a frame between activators is damaged: {0}")]
    Damaged(#[from] prost::DecodeError),
    /// The token is too long.
    #[error("a token of {0} bytes, more than {TOKEN_MAX}")]
    TokenTooLong(usize),
}

impl Frame {
    /// Encodes the frame.
    pub fn encode(self) -> Vec<u8> {
        let micros = |long: Duration| u64::try_from(long.as_micros()).unwrap_or(u64::MAX);
        let kind = match self {
            Self::Hello { version, from, token, key } => {
                Kind::Hello(Hello { version, from: from.as_str().into(), token, key })
            }
            Self::Beat(beat) => Kind::Beat(WireBeat { sent_us: micros(beat.sent), echo_us: beat.echo.map(micros) }),
            Self::Says(Says { foreign, complete, shares }) => Kind::Says(WireSays { foreign, complete, shares }),
            Self::Holder(bytes) => Kind::Holder(bytes),
        };
        Wire { kind: Some(kind) }.encode_to_vec()
    }

    /// Decodes a frame. Returns `None` if its kind is unknown.
    ///
    /// # Errors
    /// The bytes are damaged, or a token is too long.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, SessionError> {
        Wire::decode(bytes)?.kind.map(Self::try_from).transpose()
    }
}

impl TryFrom<Kind> for Frame {
    type Error = SessionError;

    fn try_from(kind: Kind) -> Result<Self, SessionError> {
        Ok(match kind {
            Kind::Hello(Hello { version, from, token, key }) => match token {
                Some(token) if token.len() > TOKEN_MAX => return Err(SessionError::TokenTooLong(token.len())),
                token => Self::Hello { version, from: from.as_str().into(), token, key },
            },
            Kind::Beat(beat) => Self::Beat(Beat {
                sent: Duration::from_micros(beat.sent_us),
                echo: beat.echo_us.map(Duration::from_micros),
            }),
            Kind::Says(WireSays { foreign, complete, shares }) => Self::Says(Says { foreign, complete, shares }),
            Kind::Holder(bytes) => Self::Holder(bytes),
        })
    }
}

// === wire format ===

#[derive(Clone, PartialEq, prost::Message)]
struct Wire {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Hello(Hello),
    #[prost(message, tag = "2")]
    Beat(WireBeat),
    #[prost(message, tag = "3")]
    Says(WireSays),
    #[prost(bytes, tag = "4")]
    Holder(Vec<u8>),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Hello {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(string, tag = "2")]
    from: String,
    #[prost(string, optional, tag = "3")]
    token: Option<String>,
    #[prost(string, tag = "4")]
    key: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireBeat {
    #[prost(uint64, tag = "1")]
    sent_us: u64,
    #[prost(uint64, optional, tag = "2")]
    echo_us: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireSays {
    #[prost(bool, tag = "1")]
    foreign: bool,
    #[prost(bool, tag = "2")]
    complete: bool,
    #[prost(bool, tag = "3")]
    shares: bool,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let micros = || any::<u32>().prop_map(|us| Duration::from_micros(u64::from(us)));
        prop_oneof![
            (any::<u32>(), ".{0,20}", prop::option::of(".{0,20}"), ".{0,20}").prop_map(
                |(version, from, token, key)| Frame::Hello { version, from: from.as_str().into(), token, key }
            ),
            (micros(), prop::option::of(micros())).prop_map(|(sent, echo)| Frame::Beat(Beat { sent, echo })),
            any::<[bool; 3]>().prop_map(|[foreign, complete, shares]| Frame::Says(Says { foreign, complete, shares })),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Frame::Holder),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(frame in any_frame()) {
            prop_assert_eq!(Frame::decode(&frame.clone().encode()), Ok(Some(frame)));
        }

        /// Goal: bytes from outside are rejected or decoded, and never cause a panic.
        #[test]
        fn damage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Frame::decode(&bytes);
        }
    }

    #[test]
    fn kinds_of_later_versions_are_skipped_and_long_tokens_refused() {
        assert_eq!(Frame::decode(&[0x4a, 1, 7]), Ok(None));
        let token = Some("x".repeat(TOKEN_MAX + 1));
        let hello = Frame::Hello { version: VERSION, from: "a".into(), token, key: String::new() };
        assert_eq!(Frame::decode(&hello.encode()), Err(SessionError::TokenTooLong(TOKEN_MAX + 1)));
    }
}
