//! Routes a stat that has reached an autoscaler: record it, send it to another instance, hold it or drop it.
//!
//! # The rule
//!
//! | owner of the revision, as known here | first-hand | forwarded once | forwarded twice |
//! |---|---|---|---|
//! | this instance | record | record | record |
//! | another instance | send | send | drop |
//! | the instance that forwarded it | – | hold for [`NEWS_DELAY_MAX`], then send back | hold |
//! | none | hold | hold | hold |
//!
//! One hop is enough while all instances agree on an owner. While a bucket changes owners they briefly disagree: the
//! stat reaches a former owner that knows its successor, and takes a second hop. One change of ownership never needs a
//! third hop. More hops would let instances that disagree for long bounce a stat between them.
//!
//! # Edge cases
//!
//! - The known owner is the forwarder itself. It has most likely just handed the bucket to this instance, and the news
//!   is still in transit. Sending the stat back would use up its hops, so it waits for the news. If no news arrives,
//!   the opposite is true: the forwarder has taken the bucket over while the stat was in transit, so the stat goes
//!   back.
//! - A forwarder that does not identify itself (Knative's, or an older Zeroscale) may get its stat back.
//! - A held stat is routed again later, with the hops that it has taken so far.

use common::ownership::Owner;
use std::time::Duration;

/// Maximum delay of the news of a change of ownership: some watch events and a stall.
pub const NEWS_DELAY_MAX: Duration = Duration::from_secs(3);

/// Hop between two autoscalers, counted from the instance that had the stat first-hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hop {
    /// Sent by the instance to which an activator sent the stat.
    First,
    /// Sent by an instance that was believed to be the owner.
    Second,
}

/// Path by which a forwarded stat has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded<I> {
    /// Hop by which it arrived.
    pub hop: Hop,
    /// Instance that forwarded it, if known.
    pub by: Option<I>,
}

/// Decision about a stat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<I> {
    /// Record the stat here.
    Record,
    /// Send the stat to this instance, as this hop.
    Send(I, Hop),
    /// Keep the stat until its revision has another owner.
    Hold,
    /// Drop the stat: it has used up its hops.
    Drop,
}

/// Routes a stat whose revision belongs to `owner`. `forwarded` is its path unless it is first-hand; `held` is the time
/// for which it has waited here.
pub fn route<I: PartialEq>(owner: Owner<I>, forwarded: Option<&Forwarded<I>>, held: Duration) -> Route<I> {
    match (owner, forwarded) {
        (Owner::Us, _) => Route::Record,
        (Owner::Nobody, _) => Route::Hold,
        (Owner::Other(owner), None) => Route::Send(owner, Hop::First),
        (Owner::Other(owner), Some(path))
            if path.by.as_ref() == Some(&owner) && (path.hop == Hop::Second || held < NEWS_DELAY_MAX) =>
        {
            Route::Hold
        }
        (Owner::Other(owner), Some(Forwarded { hop: Hop::First, .. })) => Route::Send(owner, Hop::Second),
        (Owner::Other(_), Some(Forwarded { hop: Hop::Second, .. })) => Route::Drop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the table of the module holds, cell by cell. Instances are numbers.
    #[test]
    fn a_stat_takes_at_most_two_hops() {
        let path = |hop, by| Some(Forwarded { hop, by });
        let (first, second) = (path(Hop::First, Some(1)), path(Hop::Second, Some(1)));
        let unnamed = (path(Hop::First, None), path(Hop::Second, None));
        let rows = [
            (Owner::Us, &None, Route::Record),
            (Owner::Us, &first, Route::Record),
            (Owner::Us, &second, Route::Record),
            (Owner::Other(2), &None, Route::Send(2, Hop::First)),
            (Owner::Other(2), &first, Route::Send(2, Hop::Second)),
            (Owner::Other(2), &second, Route::Drop),
            (Owner::Other(1), &first, Route::Hold),
            (Owner::Other(1), &second, Route::Hold),
            (Owner::Other(1), &unnamed.0, Route::Send(1, Hop::Second)),
            (Owner::Other(1), &unnamed.1, Route::Drop),
            (Owner::Nobody, &None, Route::Hold),
            (Owner::Nobody, &first, Route::Hold),
            (Owner::Nobody, &second, Route::Hold),
        ];
        for (owner, path, expected) in rows {
            assert_eq!(route(owner.clone(), path.as_ref(), Duration::ZERO), expected, "{owner:?} {path:?}");
            let expected =
                if (&owner, path) == (&Owner::Other(1), &first) { Route::Send(1, Hop::Second) } else { expected };
            assert_eq!(route(owner.clone(), path.as_ref(), NEWS_DELAY_MAX), expected, "no news: {owner:?} {path:?}");
        }
    }
}
