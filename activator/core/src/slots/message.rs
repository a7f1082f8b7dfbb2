//! What activators tell each other about slots, and its bytes.
//!
//! A frame is about one revision and carries messages in the order in which they were sent. It is encoded by [`prost`],
//! as stats are: unknown fields are skipped, damage anywhere fails the whole frame. Pods are written as text, `ip:port`.

use std::time::Duration;

use prost::Message as _;

use crate::destination::Destination;

/// One of a session's messages. Numbers are the sender's unless said otherwise, and never used twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// "Confirm to me what is in use of this pod, and let nobody but me grant there."
    Claim {
        /// The pod.
        pod: Destination,
        /// For the answer to name.
        number: u64,
    },
    /// The answer to a claim.
    Confirm {
        /// The pod.
        pod: Destination,
        /// The claim's.
        number: u64,
        /// Whether the sender was the one that granted, until now.
        held: bool,
        /// What the sender uses.
        own: Vec<u64>,
    },
    /// A request waits that could use a slot.
    Ask {
        /// The loan's, if there is one.
        number: u64,
        /// How long the request has waited.
        waited: Duration,
    },
    /// That is over.
    Cancel {
        /// The question's.
        number: u64,
    },
    /// A slot for a request of the receiver.
    Lend {
        /// The question's.
        number: u64,
        /// Where the slot is.
        pod: Destination,
    },
    /// A slot is no longer in use.
    Return {
        /// Where it was.
        pod: Destination,
        /// Its number.
        number: u64,
        /// It could not be used, and another one there cannot either.
        declined: bool,
    },
    /// So many slots are idle at the sender.
    Free {
        /// How many.
        slots: u32,
    },
}

impl Message {
    /// The most bytes that it takes in a frame.
    pub fn size_max(&self) -> usize {
        /// Of a pod's address, and of all numbers but those in use, with the fields' own.
        const REST: usize = 128;
        /// Of a number that is written in parts of seven bits.
        const NUMBER: usize = 10;
        match self {
            Self::Confirm { own, .. } => REST + NUMBER * own.len(),
            _ => REST,
        }
    }
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Damaged.
    #[error("a frame about slots is damaged: {0}")]
    Damaged(#[from] prost::DecodeError),
    /// Not an address.
    #[error("a frame about slots names {0:?} as a pod, which is not an address with a port")]
    NotAPod(String),
}

/// The bytes of a frame about `revision` (`namespace/name`).
pub fn encode(revision: &str, messages: impl IntoIterator<Item = Message>) -> Vec<u8> {
    let entries = messages.into_iter().map(|message| Entry { kind: Some(message.into()) }).collect();
    Frame { revision: revision.to_owned(), entries }.encode_to_vec()
}

/// Reads a frame: the revision and its messages. Messages of a kind that is not known are left out.
///
/// # Errors
/// The bytes are damaged, or name a pod that is none; nothing of the frame counts then.
pub fn decode(bytes: &[u8]) -> Result<(String, Vec<Message>), FrameError> {
    let frame = Frame::decode(bytes)?;
    let messages = frame.entries.into_iter().filter_map(|entry| entry.kind).map(Message::try_from);
    Ok((frame.revision, messages.collect::<Result<_, _>>()?))
}

// === the wire's form ===

#[derive(Clone, PartialEq, prost::Message)]
struct Frame {
    #[prost(string, tag = "1")]
    revision: String,
    #[prost(message, repeated, tag = "2")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Entry {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Claim(AtPod),
    #[prost(message, tag = "2")]
    Confirm(Confirm),
    #[prost(message, tag = "3")]
    Ask(Ask),
    #[prost(uint64, tag = "4")]
    Cancel(u64),
    #[prost(message, tag = "5")]
    Lend(AtPod),
    #[prost(message, tag = "6")]
    Return(Return),
    #[prost(uint32, tag = "7")]
    Free(u32),
}

#[derive(Clone, PartialEq, prost::Message)]
struct AtPod {
    #[prost(string, tag = "1")]
    pod: String,
    #[prost(uint64, tag = "2")]
    number: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Confirm {
    #[prost(string, tag = "1")]
    pod: String,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(bool, tag = "3")]
    held: bool,
    #[prost(uint64, repeated, tag = "4")]
    own: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Ask {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(uint64, tag = "2")]
    waited_us: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Return {
    #[prost(string, tag = "1")]
    pod: String,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(bool, tag = "3")]
    declined: bool,
}

impl From<Message> for Kind {
    fn from(message: Message) -> Self {
        let text = |pod: Destination| pod.as_str().to_owned();
        match message {
            Message::Claim { pod, number } => Self::Claim(AtPod { pod: text(pod), number }),
            Message::Confirm { pod, number, held, own } => Self::Confirm(Confirm { pod: text(pod), number, held, own }),
            Message::Ask { number, waited } => {
                Self::Ask(Ask { number, waited_us: u64::try_from(waited.as_micros()).unwrap_or(u64::MAX) })
            }
            Message::Cancel { number } => Self::Cancel(number),
            Message::Lend { number, pod } => Self::Lend(AtPod { pod: text(pod), number }),
            Message::Return { pod, number, declined } => Self::Return(Return { pod: text(pod), number, declined }),
            Message::Free { slots } => Self::Free(slots),
        }
    }
}

impl TryFrom<Kind> for Message {
    type Error = FrameError;

    fn try_from(kind: Kind) -> Result<Self, FrameError> {
        let pod = |text: String| text.parse::<Destination>().map_err(|_| FrameError::NotAPod(text));
        Ok(match kind {
            Kind::Claim(claim) => Self::Claim { pod: pod(claim.pod)?, number: claim.number },
            Kind::Confirm(confirm) => {
                let Confirm { number, held, own, .. } = confirm;
                Self::Confirm { pod: pod(confirm.pod)?, number, held, own }
            }
            Kind::Ask(ask) => Self::Ask { number: ask.number, waited: Duration::from_micros(ask.waited_us) },
            Kind::Cancel(number) => Self::Cancel { number },
            Kind::Lend(lend) => Self::Lend { number: lend.number, pod: pod(lend.pod)? },
            Kind::Return(end) => Self::Return { pod: pod(end.pod)?, number: end.number, declined: end.declined },
            Kind::Free(slots) => Self::Free { slots },
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_pod() -> impl Strategy<Value = Destination> {
        (any::<std::net::IpAddr>(), any::<u16>()).prop_map(|pod| std::net::SocketAddr::from(pod).into())
    }

    fn any_message() -> impl Strategy<Value = Message> {
        let numbers = || prop::collection::vec(any::<u64>(), 0..4);
        prop_oneof![
            (any_pod(), any::<u64>()).prop_map(|(pod, number)| Message::Claim { pod, number }),
            (any_pod(), any::<u64>(), any::<bool>(), numbers()).prop_map(|(pod, number, held, own)| Message::Confirm {
                pod,
                number,
                held,
                own
            }),
            (any::<u64>(), any::<u32>())
                .prop_map(|(number, us)| Message::Ask { number, waited: Duration::from_micros(u64::from(us)) }),
            any::<u64>().prop_map(|number| Message::Cancel { number }),
            (any_pod(), any::<u64>()).prop_map(|(pod, number)| Message::Lend { number, pod }),
            (any_pod(), any::<u64>(), any::<bool>()).prop_map(|(pod, number, declined)| Message::Return {
                pod,
                number,
                declined
            }),
            any::<u32>().prop_map(|slots| Message::Free { slots }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(messages in prop::collection::vec(any_message(), 0..5)) {
            prop_assert_eq!(decode(&encode("ns/app", messages.clone())), Ok(("ns/app".to_owned(), messages)));
        }

        /// Bytes from outside are refused or read, and never panic.
        #[test]
        fn damage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_loan_takes_few_bytes() {
        let pod: Destination = "10.244.1.17:8012".parse().expect("address");
        let frame = encode("default/hello-00001", [Message::Lend { number: 70_000, pod }]);
        assert!(frame.len() <= 50, "{} bytes", frame.len());
    }

    #[test]
    fn what_is_no_address_is_named() {
        let claim = Kind::Claim(AtPod { pod: "nowhere".into(), number: 1 });
        let frame = Frame { revision: "ns/app".into(), entries: vec![Entry { kind: Some(claim) }] };
        let error = decode(&frame.encode_to_vec()).expect_err("no address");
        assert_eq!(error, FrameError::NotAPod("nowhere".into()));
    }

    #[test]
    fn unknown_kinds_are_left_out() {
        let frame = [0x0a, 1, b'r', 0x12, 3, 0x9a, 0x01, 0x00, 0x12, 2, 0x38, 9];
        assert_eq!(decode(&frame), Ok(("r".to_owned(), vec![Message::Free { slots: 9 }])));
    }
}
