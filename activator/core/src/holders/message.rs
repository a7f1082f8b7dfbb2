//! Messages between activators about the holders of a workload, and their encoding.
//!
//! The wire format is that of [`prost`], as for stats: unknown fields are skipped. Pods are written as text, `ip:port`.

use std::collections::BTreeMap;

use super::Shards;
use crate::destination::Destination;

/// Number of requests that run on each pod.
pub type Running = BTreeMap<Destination, u32>;

/// Message on a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The sender has or wants exactly these shards. The receiver must stop sending to their pods, and confirm that.
    Claim {
        /// Number that the confirmation repeats. An activator never uses a number twice.
        number: u64,
        /// Claimed shards.
        shards: Shards,
    },
    /// Confirmation of a claim: the sender gives no more slots on pods of the claimed shards.
    Confirm {
        /// Number of the claim.
        number: u64,
        /// Requests that the sender still runs on pods that it does not hold.
        running: Running,
    },
    /// Requests that the sender still runs on pods that it does not hold: fewer than it last reported.
    Running(Running),
}

/// Error about a pod in a message that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message about the holder of a workload names the pod {0:?}, which is not an address with a port")]
pub struct NotAPod(String);

// === wire format ===

/// Message about one workload, as it is sent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WorkloadMessage {
    #[prost(string, tag = "1")]
    workload: String,
    #[prost(oneof = "Kind", tags = "2, 3, 4")]
    kind: Option<Kind>,
}

impl WorkloadMessage {
    /// Creates a message about `workload` (`namespace/name`).
    pub fn new(workload: &str, message: Message) -> Self {
        let kind = match message {
            Message::Claim { number, shards } => Kind::Claim(Claim { number, shards: shards.bits() }),
            Message::Confirm { number, running } => Kind::Confirm(Confirm::new(number, &running)),
            Message::Running(running) => Kind::Running(Confirm::new(0, &running)),
        };
        Self { workload: workload.to_owned(), kind: Some(kind) }
    }

    /// Returns the workload and the message. The message is `None` if its kind is unknown.
    ///
    /// # Errors
    /// A pod is not a valid address.
    pub fn into_parts(self) -> Result<(String, Option<Message>), NotAPod> {
        let message = match self.kind {
            Some(Kind::Claim(Claim { number, shards })) => {
                Some(Message::Claim { number, shards: Shards::from_bits(shards) })
            }
            Some(Kind::Confirm(confirm)) => {
                Some(Message::Confirm { number: confirm.number, running: confirm.running()? })
            }
            Some(Kind::Running(running)) => Some(Message::Running(running.running()?)),
            None => None,
        };
        Ok((self.workload, message))
    }
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "2")]
    Claim(Claim),
    #[prost(message, tag = "3")]
    Confirm(Confirm),
    #[prost(message, tag = "4")]
    Running(Confirm),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Claim {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(uint32, tag = "2")]
    shards: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Confirm {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(btree_map = "string, uint32", tag = "2")]
    running: BTreeMap<String, u32>,
}

impl Confirm {
    fn new(number: u64, running: &Running) -> Self {
        Self { number, running: running.iter().map(|(pod, count)| (pod.as_str().to_owned(), *count)).collect() }
    }

    fn running(self) -> Result<Running, NotAPod> {
        let pod = |(text, count): (String, u32)| match text.parse::<Destination>() {
            Ok(pod) => Ok((pod, count)),
            Err(_) => Err(NotAPod(text)),
        };
        self.running.into_iter().map(pod).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    fn any_running() -> impl Strategy<Value = Running> {
        let pod = (any::<std::net::IpAddr>(), any::<u16>()).prop_map(|pod| std::net::SocketAddr::from(pod).into());
        prop::collection::btree_map(pod, any::<u32>(), 0..4)
    }

    fn any_message() -> impl Strategy<Value = Message> {
        prop_oneof![
            (any::<u64>(), any::<u16>())
                .prop_map(|(number, shards)| Message::Claim { number, shards: Shards::from_bits(shards.into()) }),
            (any::<u64>(), any_running()).prop_map(|(number, running)| Message::Confirm { number, running }),
            any_running().prop_map(Message::Running),
        ]
    }

    fn decode(bytes: &[u8]) -> Result<(String, Option<Message>), NotAPod> {
        WorkloadMessage::decode(bytes).expect("undamaged").into_parts()
    }

    proptest! {
        #[test]
        fn messages_survive_encoding_and_decoding(message in any_message()) {
            let bytes = WorkloadMessage::new("ns/app", message.clone()).encode_to_vec();
            prop_assert_eq!(decode(&bytes), Ok(("ns/app".to_owned(), Some(message))));
        }
    }

    #[test]
    fn an_invalid_address_is_named_and_an_unknown_kind_is_skipped() {
        let running = BTreeMap::from([("nowhere".to_owned(), 1)]);
        let kind = Some(Kind::Confirm(Confirm { number: 1, running }));
        let error = WorkloadMessage { workload: "ns/app".into(), kind }.into_parts().expect_err("no address");
        assert_eq!(error, NotAPod("nowhere".into()));
        assert_eq!(decode(&[0x0a, 1, b'r', 0x2a, 0]), Ok(("r".to_owned(), None)));
    }
}
