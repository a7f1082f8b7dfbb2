//! Addresses of a fallback, as last resolved.
//!
//! Addresses are used for [`KEPT`] before they are resolved again. If that lookup gets no response, the old addresses
//! stay in use: requests need fallbacks when the cluster is in trouble, and the API server may be down too. While it is
//! down, it does not give the address to another Service. A lookup that says that the Service does not exist drops the
//! addresses at once, because another Service may own them by then.
//!
//! A failing lookup runs at most once per [`PAUSE`], regardless of the number of requests.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Time that resolved addresses are used before the next lookup. Also the pause after a lookup without a response.
const KEPT: Duration = Duration::from_secs(5);
/// Pause before the next lookup if the last one was refused, if no address accepts connections, or if none is known.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct FallbackAddresses {
    /// Earliest time of the next lookup; `None` before the first.
    next_lookup: Option<Instant>,
    /// Addresses that the last successful lookup returned.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl FallbackAddresses {
    /// Returns the addresses to use at `now`, or `None` if they must be resolved again.
    pub(crate) fn fresh(&self, now: Instant) -> Option<Vec<SocketAddr>> {
        self.next_lookup.is_some_and(|next| now < next).then(|| self.addresses.clone())
    }

    pub(crate) fn record(&mut self, now: Instant, addresses: io::Result<Vec<SocketAddr>>) {
        let pause = match addresses {
            Ok(addresses) => {
                self.addresses = addresses;
                KEPT
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                self.addresses.clear();
                PAUSE
            }
            // A lookup that timed out has delayed its request already, so it gets the longer pause.
            Err(error) if self.addresses.is_empty() && error.kind() != ErrorKind::TimedOut => PAUSE,
            Err(_) => KEPT,
        };
        self.next_lookup = Some(now + pause);
    }

    /// Records that no address accepted a connection. The Service may have moved, so the next lookup comes sooner.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.next_lookup = self.next_lookup.map(|next| next.min(now + PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Vec<SocketAddr> {
        vec!["10.0.0.9:80".parse().expect("an address")]
    }

    fn after_lookup(begin: Instant) -> FallbackAddresses {
        let mut found = FallbackAddresses::default();
        assert_eq!(found.fresh(begin), None, "no lookup yet");
        found.record(begin, Ok(addresses()));
        found
    }

    /// Goal: a first lookup that fails at once is repeated soon. An address is dropped once a lookup says that the
    /// Service does not exist, and stays in use while lookups get no response.
    #[test]
    fn a_lookup_that_leaves_no_address_is_repeated_soon() {
        let begin = Instant::now();
        let rows = [
            (false, ErrorKind::Other, PAUSE),
            (false, ErrorKind::TimedOut, KEPT),
            (true, ErrorKind::NotFound, PAUSE),
            (true, ErrorKind::ConnectionRefused, PAUSE),
            (true, ErrorKind::TimedOut, KEPT),
        ];
        for (had_address, kind, pause) in rows {
            let mut found = if had_address { after_lookup(begin) } else { FallbackAddresses::default() };
            let next = begin + KEPT + pause;
            let expected = if had_address && pause == KEPT { addresses() } else { Vec::new() };
            assert_eq!(found.fresh(begin + KEPT), None, "a lookup is due");
            found.record(begin + KEPT, Err(kind.into()));
            let just_before = next - Duration::from_millis(1);
            assert_eq!((found.fresh(just_before), found.fresh(next)), (Some(expected.clone()), None), "{kind}");
            found.record(next, Err(ErrorKind::TimedOut.into()));
            assert_eq!(found.fresh(next), Some(expected), "{kind}: it stays, or does not come back");
        }
    }

    /// Goal: if a fallback does not accept connections, its addresses are resolved again soon, but not once per
    /// request.
    #[test]
    fn addresses_that_refuse_connections_are_resolved_again_soon() {
        let begin = Instant::now();
        let mut found = after_lookup(begin);
        let later = PAUSE / 2;
        found.failed(begin);
        found.failed(begin + later);
        assert_eq!(found.fresh(begin + later), Some(addresses()));
        assert_eq!(found.fresh(begin + PAUSE), None, "a second failure does not delay the lookup");
        assert_eq!(found.addresses, addresses(), "they stay until the lookup");
    }
}
