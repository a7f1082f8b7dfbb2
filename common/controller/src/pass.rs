//! Frame of every pass over an object: begins the status, reports errors, finishes and writes the status.
//!
//! The status is written even if the pass failed, so it contains the reason. Two kinds of errors are not reported in an
//! event. After a conflict, the retry reads the object again. After a temporary error ([`Failure::is_temporary`]) no
//! status is written either, because too little is known for one.

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

/// Destination of statuses and errors of one kind of objects.
pub trait Statuses<K: HasStatus>: Send + Sync {
    /// Writes the status of an object, unless it is unchanged. `read` is the object's newest known version. Fails with
    /// the error that prevented the write.
    fn write<'a>(&'a self, read: &'a Arc<K>, status: K::Status) -> BoxFuture<'a, Result<(), WriteError>>;

    /// Reports an error of an object, once for as long as the same error persists.
    fn report_error(&self, object: &K, reason: &str, message: String);
}

/// Writes statuses and events to the API server.
pub struct Written<'a, K> {
    /// Writer of statuses.
    pub writer: Writer<'a>,
    /// Store of these objects.
    pub store: &'a Store<K>,
    /// Recorder of errors.
    pub recorder: &'a Recorder,
    /// Component in whose name errors are recorded.
    pub component: &'static str,
}

impl<K: Kind + HasStatus<Status: PartialEq + Clone + Send + Sync>> Statuses<K> for Written<'_, K> {
    fn write<'a>(&'a self, read: &'a Arc<K>, status: K::Status) -> BoxFuture<'a, Result<(), WriteError>> {
        status::write(self.writer, self.store, read, status).boxed()
    }

    fn report_error(&self, object: &K, reason: &str, message: String) {
        self.recorder.record_error(self.component, object, reason, message);
    }
}

/// Shared parts of passes over one kind of objects.
pub struct Passes<'a, K: HasStatus> {
    /// Destination of statuses.
    pub statuses: &'a dyn Statuses<K>,
    /// Wall-clock time.
    pub clock: &'a Clock,
}

/// Result of one pass.
pub struct Passed<K: HasStatus, E> {
    /// Success, or the error that ended the pass.
    pub outcome: Result<(), E>,
    /// Newest version of the object that was read or returned by a write.
    pub object: Arc<K>,
    /// New status of the object.
    pub status: K::Status,
}

impl<K: Resource + HasStatus<Status: HasConditions + Default + PartialEq + Clone>> Passes<'_, K> {
    /// Runs one pass over `object`. `run` gets the begun status and the time; it must not write the status itself.
    /// Returns the error of the pass, else that of writing the status.
    pub async fn over<E: Failure + From<WriteError>>(
        self,
        object: &Arc<K>,
        run: impl AsyncFnOnce(K::Status, Timestamp) -> Passed<K, E>,
    ) -> Result<(), E> {
        let now = self.clock.now();
        let passed = run(Passes::begin(&**object, now), now).await;
        self.end(object, passed).await
    }

    /// Returns the status of an object at the beginning of a pass.
    pub fn begin(object: &K, now: Timestamp) -> K::Status {
        let mut status = object.status().cloned().unwrap_or_default();
        status.begin(object.meta().generation.unwrap_or(0), now);
        status
    }

    /// Ends a pass over the object that was `read`: reports errors and writes the status. Returns the error of the
    /// pass, else that of writing the status.
    pub async fn end<E: Failure + From<WriteError>>(self, read: &Arc<K>, passed: Passed<K, E>) -> Result<(), E> {
        let Self { statuses, clock } = self;
        let Passed { outcome, object: latest, mut status } = passed;
        if let Err(error) = &outcome {
            if error.is_temporary() {
                return outcome;
            }
            if !error.is_conflict() {
                statuses.report_error(read, "InternalError", error.to_string());
            }
        }
        status.finish(read.status(), read.meta().generation.unwrap_or(0), clock.now());
        let written = statuses.write(&latest, status).await;
        if let Some(error) = written.as_ref().err().filter(|error| !error.is_temporary()) {
            statuses.report_error(read, "UpdateFailed", error.to_string());
        }
        outcome.and(written.map_err(E::from))
    }
}
