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
use kube::core::object::HasStatus;
use std::sync::Arc;

/// What passes over one kind of objects have in common.
pub struct Passes<'a, K> {
    /// Whoever writes.
    pub writer: Writer<'a>,
    /// Where such objects are held.
    pub store: &'a Store<K>,
    /// Who says what went wrong,
    pub recorder: &'a Recorder,
    /// in whose name.
    pub component: &'static str,
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
    K: Kind + HasStatus,
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
        let Self { writer, store, recorder, component, clock } = self;
        let (now, generation) = (clock.now(), object.meta().generation.unwrap_or(0));
        let mut status = object.status().cloned().unwrap_or_default();
        status.begin(generation, now);
        let Passed { outcome, object: latest, mut status } = run(status, now).await;
        if let Err(error) = &outcome {
            if error.is_early() {
                return outcome;
            }
            if !error.is_conflict() {
                recorder.complain(component, &**object, "InternalError", error.to_string());
            }
        }
        status.finish(object.status(), generation, clock.now());
        let written = status::write(writer, store, &latest, status).await;
        if let Some(error) = written.as_ref().err().filter(|error| !error.is_early()) {
            recorder.complain(component, &**object, "UpdateFailed", error.to_string());
        }
        outcome.and(written.map_err(E::from))
    }
}
