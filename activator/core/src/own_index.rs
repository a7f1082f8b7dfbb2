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

    /// Goal: the order of the addresses and duplicates (one address in two slices) change nothing. The rows of
    /// `tests/upstream` cover the rest.
    #[test]
    fn an_index_does_not_depend_on_the_order_of_a_list() {
        let addresses = ["11.11.11.11", "10.10.10.3", "10.10.10.20", "10.10.10.3"];
        assert_eq!(own_index("10.10.10.3", addresses), Activators::Known { index: 1, count: 3 });
    }
}
