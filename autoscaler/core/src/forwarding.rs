//! Where a stat goes on that has reached an autoscaler: into its windows, to another one, or nowhere yet.
//!
//! # The rule
//!
//! | whose the revision is, as seen from here | first-hand | forwarded once | forwarded twice |
//! |---|---|---|---|
//! | ours | recorded | recorded | recorded |
//! | another's | sent on | sent on | dropped |
//! | the forwarder's own | – | held for [`NEWS_WITHIN`], then sent back | held |
//! | nobody's | held | held | held |
//!
//! One hop is enough while all instances agree on an owner. While a bucket changes hands they do not for a moment: the
//! stat comes to a former owner, which knows its successor, so it takes a second hop. A third one is never needed for
//! one change of hands, and would let instances that disagree for long bounce a stat between them.
//!
//! # Odd cases
//!
//! - The forwarder is said to be the owner: it has just given the bucket away, to us most likely, and the news is still
//!   on its way. To send the stat back would use up its hops, so it waits for the news. Where there is none, it is the
//!   other way round: the forwarder has taken the bucket over from us while the stat was on its way, so the stat goes back.
//! - A forwarder that does not say who it is (upstream's, or an older one of ours) may get its stat back.
//! - What is held is asked for again; what it has come by so far stays with it.

use common::ownership::Owner;
use std::time::Duration;

/// How long news of a change of hands may take: some watch events and a stall.
pub const NEWS_WITHIN: Duration = Duration::from_secs(3);

/// A way between two autoscalers, counted from whoever had the stat first-hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hop {
    /// From the instance that an activator has sent it to.
    First,
    /// From one that was thought to be the owner.
    Second,
}

/// How a stat that is not first-hand has come here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded<I> {
    /// By which hop.
    pub hop: Hop,
    /// By whom, if it has said so.
    pub by: Option<I>,
}

/// What to do with a stat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<I> {
    /// It counts here.
    Record,
    /// It goes to this instance, by this hop.
    Send(I, Hop),
    /// Keep it until its revision has another owner.
    Hold,
    /// It has come far enough.
    Drop,
}

/// Where a stat goes whose revision is `owner`'s; `came`: how it has come here, unless first-hand; `held`: for how long it
/// has waited here.
pub fn route<I: PartialEq>(owner: Owner<I>, came: Option<&Forwarded<I>>, held: Duration) -> Route<I> {
    match (owner, came) {
        (Owner::Us, _) => Route::Record,
        (Owner::Nobody, _) => Route::Hold,
        (Owner::Other(owner), None) => Route::Send(owner, Hop::First),
        (Owner::Other(owner), Some(came))
            if came.by.as_ref() == Some(&owner) && (came.hop == Hop::Second || held < NEWS_WITHIN) =>
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

    /// Goal: the table above, cell by cell; instances are numbers.
    #[test]
    fn a_stat_takes_two_hops_at_most_and_never_goes_back() {
        let came = |hop, by| Some(Forwarded { hop, by });
        let (first, second) = (came(Hop::First, Some(1)), came(Hop::Second, Some(1)));
        let unnamed = (came(Hop::First, None), came(Hop::Second, None));
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
        for (owner, came, expected) in rows {
            assert_eq!(route(owner.clone(), came.as_ref(), Duration::ZERO), expected, "{owner:?} {came:?}");
            let expected =
                if (&owner, came) == (&Owner::Other(1), &first) { Route::Send(1, Hop::Second) } else { expected };
            assert_eq!(route(owner.clone(), came.as_ref(), NEWS_WITHIN), expected, "no news: {owner:?} {came:?}");
        }
    }
}
