//! Where requests go: addresses, ordered as every activator orders them.
//!
//! Activators divide a revision's pods among themselves without talking, by sorting the same list in the same way. That
//! way is bytewise by text (`10.0.0.10:8012` sorts before `10.0.0.2:8012`), because it is Knative's, and both may serve
//! one cluster. The text is therefore kept beside the parsed address; cloning shares it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{AddrParseError, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// One address that requests can be sent to. Ordered by its text.
#[derive(Clone)]
pub struct Destination {
    address: SocketAddr,
    text: Arc<str>,
}

/// What a revision's requests may be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destinations {
    /// These pods, each proven; possibly none.
    Pods(Vec<Destination>),
    /// One address that somebody else balances behind, because a mesh keeps the pods from being addressed.
    ClusterIp {
        /// The Service's address and port.
        destination: Destination,
        /// Pods behind it that Kubernetes calls ready.
        ready: u32,
    },
}

impl Destination {
    /// The address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its text, `ip:port`, with IPv6 in brackets.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Destinations {
    /// No pods at all.
    pub const NONE: Self = Self::Pods(Vec::new());

    /// Whether nothing can be sent anywhere.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Pods(pods) if pods.is_empty())
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self { address, text: address.to_string().into() }
    }
}

impl FromStr for Destination {
    type Err = AddrParseError;

    /// From `ip:port`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<SocketAddr>().map(Self::from)
    }
}

impl Ord for Destination {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl PartialOrd for Destination {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Destination {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl Eq for Destination {}

impl Hash for Destination {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address.hash(state);
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn order_is_by_text_not_by_number() {
        let mut list: Vec<Destination> =
            ["10.0.0.2:8012", "10.0.0.10:8012", "[2001:db8::1]:8012"].map(|s| s.parse().expect("address")).to_vec();
        list.sort();
        let texts: Vec<&str> = list.iter().map(Destination::as_str).collect();
        assert_eq!(texts, ["10.0.0.10:8012", "10.0.0.2:8012", "[2001:db8::1]:8012"]);
    }

    #[test]
    fn an_address_is_shown_as_its_text_and_hashed_as_itself() {
        use std::hash::{BuildHasher, RandomState};
        let of = |text: &str| text.parse::<Destination>().expect("an address");
        let (one, two) = (of("10.0.0.1:8012"), of("10.0.0.2:8012"));
        assert_eq!((one.to_string(), format!("{one:?}")), ("10.0.0.1:8012".into(), "10.0.0.1:8012".into()));
        let state = RandomState::new();
        assert_eq!(state.hash_one(&one), state.hash_one(of("10.0.0.1:8012")));
        assert_ne!(state.hash_one(&one), state.hash_one(&two), "a table of addresses is no list");
    }

    #[test]
    fn a_name_is_not_an_address() {
        assert!("pod:8012".parse::<Destination>().is_err());
        assert!("10.0.0.1".parse::<Destination>().is_err(), "the port must be named");
    }
}
