//! Headers of a handshake between autoscalers, which mark its connection as carrying forwarded stats.
//!
//! Two headers of ours, which upstream ignores: [`FORWARDED`] names the hop, [`FORWARDER`] the forwarder's identity,
//! as on its leases. An older version of ours sends `1` and no identity, and accepts any value as a mark.

use autoscaler_core::forwarding::{Forwarded, Hop};
use common::ownership::Holder;
use common_controller::shares::Instance;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Hop of a connection: `1` or `2`. Any other value counts as the last hop.
pub const FORWARDED: &str = "zeroscale-forwarded";
/// Identity of the forwarder.
pub const FORWARDER: &str = "zeroscale-forwarder";

/// Returns the headers of a connection for this hop, from `me`.
pub fn headers(hop: Hop, me: Option<&Holder>) -> Vec<(HeaderName, HeaderValue)> {
    let number = match hop {
        Hop::First => "1",
        Hop::Second => "2",
    };
    let me = me.and_then(|me| HeaderValue::try_from(me.to_string()).ok());
    let mark = (HeaderName::from_static(FORWARDED), HeaderValue::from_static(number));
    [mark].into_iter().chain(me.map(|me| (HeaderName::from_static(FORWARDER), me))).collect()
}

/// Reads the forwarding mark of a connection with these headers; none: its stats are first-hand.
pub fn read(headers: &HeaderMap) -> Option<Forwarded<Instance>> {
    let hop = if headers.get(FORWARDED)? == "1" { Hop::First } else { Hop::Second };
    let by = headers.get(FORWARDER).and_then(|by| by.to_str().ok()).and_then(Holder::parse);
    Some(Forwarded { hop, by: by.map(Instance::Leased) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: written headers are read back. Unknown values count as a mark too, for the last hop.
    #[test]
    fn headers_carry_the_hop_and_the_forwarder() {
        let me = Holder { pod_name: "as-0".into(), pod_ip: [10, 0, 0, 1].into() };
        for hop in [Hop::First, Hop::Second] {
            for me in [Some(&me), None] {
                let read = read(&headers(hop, me).into_iter().collect());
                assert_eq!(read, Some(Forwarded { hop, by: me.cloned().map(Instance::Leased) }));
            }
        }
        assert_eq!(read(&HeaderMap::new()), None);
        for (mark, by, expected) in [("1", "nonsense", Hop::First), ("", "", Hop::Second), ("3", "", Hop::Second)] {
            let other = [(FORWARDED, mark), (FORWARDER, by)]
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            assert_eq!(read(&other.into_iter().collect()), Some(Forwarded { hop: expected, by: None }), "{mark:?}");
        }
    }
}
