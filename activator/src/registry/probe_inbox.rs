//! Inbox of the task that finds a revision's pods ([`super::backends`]).
//!
//! It holds at most one listing, one spec and one entry per failed pod. So producers never wait, and work never
//! accumulates.

use crate::discovery::{Listing, Spec};
use activator_core::Destination;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Notify;

/// Inbox shared by a revision and its task.
#[derive(Default)]
pub(super) struct ProbeInbox {
    pub(super) inbox: Mutex<Inbox>,
    pub(super) changed: Notify,
}

/// Changes since the task last read the inbox.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) listing: Option<Listing>,
    pub(super) spec: Option<Arc<Spec>>,
    pub(super) cluster_ip: Option<Option<Destination>>,
    pub(super) failed: BTreeSet<Destination>,
    pub(super) closed: bool,
}

impl ProbeInbox {
    pub(super) fn put(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut self.inbox.lock());
        self.changed.notify_one();
    }
}
