//! Position of this activator among the activators of a revision.
//!
//! The public endpoints of a revision list the activators that carry its traffic. They are sorted bytewise by text. The
//! position of this activator's address is the index that [`assign`](crate::throttler::assign) uses. Every activator
//! computes the same list.
//!
//! # Better than Knative
//!
//! Knative keeps the last index forever after its own address has left the list, and keeps using a stale slice of the
//! pods. Here the index becomes unknown again, which uses all pods. That is safer for the last requests that still
//! arrive, and for a Service that has switched to listing pods (Serve mode).

/// Number of activators that share a revision, and the position of this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activators {
    /// This activator is not in the list, or no list is known yet.
    #[default]
    Unknown,
    /// Position `index` (from 0) of `count`; `index < count`.
    Known {
        /// Position in the sorted list.
        index: u32,
        /// Length of the list.
        count: u32,
    },
}

impl Activators {
    /// Returns the number of activators that share the revision, if known.
    pub fn count(self) -> Option<u32> {
        match self {
            Self::Unknown => None,
            Self::Known { count, .. } => Some(count),
        }
    }
}

/// Returns the position of this activator in `addresses`. These are the ready addresses of the public endpoints whose
/// port carries the revision's protocol, as text without port, in any order. `own` is compared as text, as Knative
/// does.
pub fn own_index<'a>(own: &str, addresses: impl IntoIterator<Item = &'a str>) -> Activators {
    let mut sorted: Vec<&str> = addresses.into_iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    match sorted.binary_search(&own) {
        Ok(index) => Activators::Known { index: index as u32, count: sorted.len() as u32 },
        Err(_) => Activators::Unknown,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn known(index: u32, count: u32) -> Activators {
        Activators::Known { index, count }
    }

    #[test]
    fn an_activators_index_is_its_position_among_the_addresses() {
        let own = "10.10.10.3";
        type Row<'a> = (&'a [&'a str], Activators);
        let rows: [Row<'_>; 5] = [
            (&[], Activators::Unknown),
            (&["11.11.11.11", "11.11.11.12"], Activators::Unknown),
            (&["10.10.10.3", "11.11.11.11"], known(0, 2)),
            (&["10.10.10.1", "10.10.10.2", "10.10.10.3", "11.11.11.11"], known(2, 4)),
            (&["10.10.10.1", "10.10.10.2", "10.10.10.3"], known(2, 3)),
        ];
        for (addresses, expected) in rows {
            assert_eq!(own_index(own, addresses.iter().copied()), expected, "{addresses:?}");
        }
        assert_eq!(own_index("10.0.0.2", ["10.0.0.2", "10.0.0.10"]), known(1, 2), "as text");
        let unordered = ["11.11.11.11", "10.10.10.3", "10.10.10.20", "10.10.10.3"];
        assert_eq!(own_index(own, unordered), known(1, 3), "one address in two slices counts once");
    }
}
