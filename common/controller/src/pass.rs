//! What every pass over an object has around it: a status begun, whatever went wrong said, the status finished and
//! written.
//!
//! The status is written even if the pass failed, so that it tells why. Two kinds of errors are not said in an event: a
//! conflict, since the next try reads again, and what passes by itself ([`Failure::is_early`]), after which nothing is
//! written either: too little was known to say anything.

use crate::error::{Failure, WriteError};
use crate::recorder::Recorder;
use crate::status;
use crate::store::Store;
use crate::writer::{Kind, Writer};
use common::time::Timestamp;
use common_api::condition_set::HasConditions;
use common_runtime::clock::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Resource;
use kube::core::object::HasStatus;
use std::sync::Arc;

/// Where the statuses of one kind of objects are written, and what went wrong is said.
pub trait Statuses<K: HasStatus>: Send + Sync {
    /// Writes the status of an object, of which `read` is the newest known version, unless that says the same.
    ///
    /// # Errors
    /// Whatever kept it from being written.
    fn write<'a>(&'a self, read: &'a Arc<K>, status: K::Status) -> BoxFuture<'a, Result<(), WriteError>>;

    /// Says what went wrong with an object, once for as long as it goes wrong in one and the same way.
    fn complain(&self, object: &K, reason: &str, message: String);
}

/// Statuses and events of the API server's objects.
pub struct Written<'a, K> {
    /// Whoever writes.
    pub writer: Writer<'a>,
    /// Where such objects are held.
    pub store: &'a Store<K>,
    /// Who says what went wrong,
    pub recorder: &'a Recorder,
    /// in whose name.
    pub component: &'static str,
}

impl<K> Statuses<K> for Written<'_, K>
where
    K: Kind + HasStatus,
    K::Status: PartialEq + Clone + Send + Sync,
{
    fn write<'a>(&'a self, read: &'a Arc<K>, status: K::Status) -> BoxFuture<'a, Result<(), WriteError>> {
        status::write(self.writer, self.store, read, status).boxed()
    }

    fn complain(&self, object: &K, reason: &str, message: String) {
        self.recorder.complain(self.component, object, reason, message);
    }
}

/// What passes over one kind of objects have in common.
pub struct Passes<'a, K: HasStatus> {
    /// Where their statuses go.
    pub statuses: &'a dyn Statuses<K>,
    /// Wall-clock time.
    pub clock: &'a Clock,
}

/// What one pass came to.
pub struct Passed<K: HasStatus, E> {
    /// Whether it came to its end.
    pub outcome: Result<(), E>,
    /// The newest version of the object that was read or answered.
    pub object: Arc<K>,
    /// Its status as it shall be.
    pub status: K::Status,
}

impl<K> Passes<'_, K>
where
    K: Resource + HasStatus,
    K::Status: HasConditions + Default + PartialEq + Clone,
{
    /// One pass over `object`. `run` is given its status, begun, and the time; it must not be the one who writes it.
    ///
    /// # Errors
    /// Whatever kept the pass from its end, or the status from being written.
    pub async fn over<E: Failure + From<WriteError>>(
        self,
        object: &Arc<K>,
        run: impl AsyncFnOnce(K::Status, Timestamp) -> Passed<K, E>,
    ) -> Result<(), E> {
        let now = self.clock.now();
        let passed = run(Passes::begin(&**object, now), now).await;
        self.end(object, passed).await
    }

    /// Returns the status of an object as a pass begins with it.
    pub fn begin(object: &K, now: Timestamp) -> K::Status {
        let mut status = object.status().cloned().unwrap_or_default();
        status.begin(object.meta().generation.unwrap_or(0), now);
        status
    }

    /// Ends a pass over what was `read`: says what went wrong, and writes the status.
    ///
    /// # Errors
    /// Whatever kept the pass from its end, or the status from being written.
    pub async fn end<E: Failure + From<WriteError>>(self, read: &Arc<K>, passed: Passed<K, E>) -> Result<(), E> {
        let Self { statuses, clock } = self;
        let Passed { outcome, object: latest, mut status } = passed;
        if let Err(error) = &outcome {
            if error.is_early() {
                return outcome;
            }
            if !error.is_conflict() {
                statuses.complain(read, "InternalError", error.to_string());
            }
        }
        status.finish(read.status(), read.meta().generation.unwrap_or(0), clock.now());
        let written = statuses.write(&latest, status).await;
        if let Some(error) = written.as_ref().err().filter(|error| !error.is_early()) {
            statuses.complain(read, "UpdateFailed", error.to_string());
        }
        outcome.and(written.map_err(E::from))
    }
}
