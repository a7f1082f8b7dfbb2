//! What a [`Pool`](super::Pool) is told, and what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::{Message, Peer};
use crate::destination::Destination;

/// A request of this activator, named by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request(pub u64);

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A request needs a slot. `since`: when it came to this activator, which decides who is next.
    Arrive {
        /// Its name; not one that waits or runs.
        request: Request,
        /// When it came.
        since: Instant,
    },
    /// A request waits no longer, or has ended: its slot is idle.
    End(Request),
    /// All pods that are listed, and whether each may be sent to. The first list is of pods that were there before; later
    /// ones tell which are new. So the list that is empty is told, too.
    Pods(BTreeMap<Destination, bool>),
    /// The activators that are ready.
    Members(BTreeSet<Peer>),
    /// A session was opened.
    Connected(Peer),
    /// It has ended.
    Disconnected(Peer),
    /// A message on the present session.
    Received {
        /// Whose session.
        from: Peer,
        /// What it says.
        message: Message,
    },
    /// Time has passed: see [`Pool::due`](super::Pool::due).
    Tick,
    /// This activator ends: it grants nothing and borrows nothing from now on, and what it runs is cut.
    Stop,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A request has a slot.
    Run {
        /// Which.
        request: Request,
        /// On this pod.
        pod: Destination,
    },
    /// To be sent on the session, after all that was to be sent there before.
    Send {
        /// Whose session.
        to: Peer,
        /// What to say.
        message: Message,
    },
    /// The request must end at once. Its slot is in use until [`Input::End`]; said again with each look until then.
    Cut(Request),
}
