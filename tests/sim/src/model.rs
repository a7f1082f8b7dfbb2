//! Objects in the API server's store, and in the copies of all processes.
//!
//! Objects have only the fields that the rules read and write. Each write of any object raises the version, as in
//! Kubernetes. A process ignores an older version than the one that it knows.

use autoscaler_core::active::{Active, ActiveCondition};
use autoscaler_core::path_mode::PathMode;
use common::election::Record;
use common::time::Timestamp;
use std::collections::BTreeMap;

/// Name of an object, with its revision, or the bucket of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Id {
    /// Scaled object.
    Target(usize),
    /// Status of the ZeroScaler.
    Status(usize),
    /// ServerlessService.
    Path(usize),
    /// Endpoints of the public Service.
    Public(usize),
    /// Endpoints of the private Service: the ready pods.
    Private(usize),
    /// Endpoints of the activators' Service: the ready activators.
    Activators,
    /// Lease of a bucket.
    Lease(usize),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
    Target(i32),
    Status(Status),
    Path(Path),
    Public(Vec<Endpoint>),
    /// Pods or activators.
    Ready(Vec<usize>),
    Lease(Record),
}

/// Destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Pod(usize),
    Activator(usize),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Status {
    /// Active condition and the time of its last change.
    pub(crate) active: Option<(ActiveCondition, Timestamp)>,
    pub(crate) initialized: bool,
    pub(crate) desired: Option<i32>,
}

impl Status {
    pub(crate) fn active(&self, now: Timestamp) -> Active {
        let Some((verdict, since)) = self.active else { return Active::Absent };
        let age = now.saturating_since(since);
        match verdict.parts().0 {
            None => Active::Unknown(age),
            Some(true) => Active::True(age),
            Some(false) => Active::False(age),
        }
    }
}

/// ServerlessService: its requested mode, and the time since which the public endpoints are activators.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    pub(crate) mode: PathMode,
    pub(crate) activators: i32,
    pub(crate) proxy_since: Option<Timestamp>,
}

/// Objects by name with their versions: the store itself or a copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(BTreeMap<Id, (u64, Object)>);

impl Objects {
    /// Stores an object. Returns true if its version is newer.
    pub(crate) fn put(&mut self, id: Id, version: u64, object: Object) -> bool {
        match self.0.get(&id) {
            Some((known, _)) if *known >= version => false,
            _ => {
                self.0.insert(id, (version, object));
                true
            }
        }
    }

    pub(crate) fn get(&self, id: Id) -> Option<&(u64, Object)> {
        self.0.get(&id)
    }

    pub(crate) fn ids(&self) -> Vec<Id> {
        self.0.keys().copied().collect()
    }

    pub(crate) fn version(&self, id: Id) -> u64 {
        self.0.get(&id).map_or(0, |(version, _)| *version)
    }

    pub(crate) fn target(&self, revision: usize) -> Option<i32> {
        let Object::Target(replicas) = self.object(Id::Target(revision))? else { return None };
        Some(*replicas)
    }

    pub(crate) fn status(&self, revision: usize) -> Option<&Status> {
        let Object::Status(status) = self.object(Id::Status(revision))? else { return None };
        Some(status)
    }

    pub(crate) fn path(&self, revision: usize) -> Option<&Path> {
        let Object::Path(path) = self.object(Id::Path(revision))? else { return None };
        Some(path)
    }

    pub(crate) fn public(&self, revision: usize) -> &[Endpoint] {
        let Some(Object::Public(endpoints)) = self.object(Id::Public(revision)) else { return &[] };
        endpoints
    }

    pub(crate) fn ready_pods(&self, revision: usize) -> &[usize] {
        self.ready(Id::Private(revision))
    }

    pub(crate) fn ready_activators(&self) -> &[usize] {
        self.ready(Id::Activators)
    }

    pub(crate) fn lease(&self, bucket: usize) -> Option<&Record> {
        let Object::Lease(record) = self.object(Id::Lease(bucket))? else { return None };
        Some(record)
    }

    fn ready(&self, id: Id) -> &[usize] {
        let Some(Object::Ready(ready)) = self.object(id) else { return &[] };
        ready
    }

    fn object(&self, id: Id) -> Option<&Object> {
        self.0.get(&id).map(|(_, object)| object)
    }
}
