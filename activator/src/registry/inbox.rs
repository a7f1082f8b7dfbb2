//! What a revision tells the task that finds its pods ([`super::backends`]). It holds at most one listing, one spec and
//! one mention of each failed pod, so that no producer ever waits or piles up work.

use crate::discovery::{Listing, Spec};
use activator_core::Destination;
use activator_core::backends::Rules;
use common::backend::{Probe, Protocol};
use http::HeaderValue;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Notify;

/// The way in, held by the revision.
#[derive(Default)]
pub(crate) struct Handle {
    shared: Arc<Shared>,
}

/// What a revision and its task share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) inbox: Mutex<Inbox>,
    pub(super) changed: Notify,
}

/// What has happened since the task last looked.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) listing: Option<Listing>,
    pub(super) judge: Option<Judge>,
    pub(super) cluster_ip: Option<Option<Destination>>,
    pub(super) failed: BTreeSet<Destination>,
    pub(super) closed: bool,
}

/// How pods are judged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judge {
    pub(super) rules: Rules,
    pub(super) probe: Probe,
    pub(super) protocol: Protocol,
    pub(super) passthrough: Option<HeaderValue>,
}

impl Handle {
    /// Pods are judged by this from now on.
    pub(crate) fn set_spec(&self, spec: &Spec) {
        let judge = Judge {
            rules: spec.rules,
            probe: spec.backend.probe.clone(),
            protocol: spec.backend.protocol,
            passthrough: spec.passthrough.as_deref().cloned(),
        };
        self.put(|inbox| inbox.judge = Some(judge));
    }

    pub(crate) fn set_listing(&self, listing: Listing) {
        self.put(|inbox| inbox.listing = Some(listing));
    }

    /// The cluster IP is this.
    pub(crate) fn set_cluster_ip(&self, destination: Option<Destination>) {
        self.put(|inbox| inbox.cluster_ip = Some(destination));
    }

    /// A request could not be delivered there.
    pub(crate) fn failed(&self, destination: Destination) {
        self.put(|inbox| {
            inbox.failed.insert(destination);
        });
    }

    pub(crate) fn close(&self) {
        self.put(|inbox| inbox.closed = true);
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    fn put(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut self.shared.inbox.lock());
        self.shared.changed.notify_one();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
