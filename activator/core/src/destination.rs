//! Destinations of requests: addresses in the order that every activator uses.
//!
//! Activators divide the pods of a revision without talking to each other, by sorting the same list in the same order.
//! The order is bytewise by text (`10.0.0.10:8012` sorts before `10.0.0.2:8012`). Knative sorts this way, and
//! activators of both kinds may serve one cluster. The text is therefore stored beside the parsed address; clones share
//! it.

use std::fmt;
use std::net::{AddrParseError, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// Address that requests can be sent to. Ordered by its text, which therefore is the first field.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    text: Arc<str>,
    address: SocketAddr,
}

/// Destinations that the requests of a revision may be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destinations {
    /// Pods that have passed a probe; possibly none.
    Pods(Vec<Destination>),
    /// Address of a Service that balances over the pods. Used if a mesh keeps the pods from being addressed.
    ClusterIp {
        /// Address and port of the Service.
        destination: Destination,
        /// Number of pods behind the Service that Kubernetes reports as ready.
        ready: u32,
    },
}

impl Destination {
    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address as text, `ip:port`, with IPv6 in brackets.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Destinations {
    /// Empty list of pods.
    pub const NONE: Self = Self::Pods(Vec::new());

    /// Returns true if there is no pod to send to.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Pods(pods) if pods.is_empty())
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self { text: address.to_string().into(), address }
    }
}

impl FromStr for Destination {
    type Err = AddrParseError;

    /// Parses `ip:port`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<SocketAddr>().map(Self::from)
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
        assert_eq!(
            format!("{list:?} {}", list[0]),
            "[10.0.0.10:8012, 10.0.0.2:8012, [2001:db8::1]:8012] 10.0.0.10:8012"
        );
    }
}
