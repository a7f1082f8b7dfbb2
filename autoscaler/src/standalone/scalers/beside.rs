//! While PodAutoscalers are still served beside ZeroScalers: the records of each revision are where its object is.

use super::Scalers;
use crate::reconcile::error::Error;
use crate::reconcile::records::{Children, Scaled, Subjects};
use common::RevisionKey as Key;
use common_api::PodAutoscaler;
use common_controller::{Severity, Statuses, WriteError, key_of};
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::object::HasStatus;
use serde_json::Value;
use std::sync::Arc;

/// Chooses between two places by whose the revision is.
pub(super) struct Beside<O, A: ?Sized> {
    pub(super) scalers: Arc<Scalers>,
    /// Of ZeroScalers.
    pub(super) own: Arc<O>,
    /// Of PodAutoscalers.
    pub(super) api: Arc<A>,
}

impl<K: Resource + HasStatus, O: Statuses<K>, A: Statuses<K> + ?Sized> Statuses<K> for Beside<O, A> {
    fn write<'a>(&'a self, read: &'a Arc<K>, status: K::Status) -> BoxFuture<'a, Result<(), WriteError>> {
        match self.scalers.has(&key_of(&**read)) {
            true => self.own.write(read, status),
            false => self.api.write(read, status),
        }
    }

    fn complain(&self, object: &K, reason: &str, message: String) {
        match self.scalers.has(&key_of(object)) {
            true => self.own.complain(object, reason, message),
            false => self.api.complain(object, reason, message),
        }
    }
}

impl<O: Subjects> Subjects for Beside<O, dyn Subjects> {
    fn say(&self, object: &PodAutoscaler, severity: Severity, reason: &str, message: String) {
        match self.scalers.has(&key_of(object)) {
            true => self.own.say(object, severity, reason, message),
            false => self.api.say(object, severity, reason, message),
        }
    }

    fn scaled(&self, object: &PodAutoscaler, scaled: Scaled) {
        match self.scalers.has(&key_of(object)) {
            true => self.own.scaled(object, scaled),
            false => self.api.scaled(object, scaled),
        }
    }

    fn merge<'a>(
        &'a self,
        object: &'a Arc<PodAutoscaler>,
        patch: Value,
        doing: &'a str,
    ) -> BoxFuture<'a, Result<Arc<PodAutoscaler>, WriteError>> {
        match self.scalers.has(&key_of(&**object)) {
            true => self.own.merge(object, patch, doing),
            false => self.api.merge(object, patch, doing),
        }
    }
}

impl<K: Resource + HasStatus + 'static, O: Children<K>> Children<K> for Beside<O, dyn Children<K>> {
    fn create<'a>(&'a self, revision: &'a Key, object: K, doing: &'a str) -> BoxFuture<'a, Result<Arc<K>, Error>> {
        match self.scalers.has(revision) {
            true => self.own.create(revision, object, doing),
            false => self.api.create(revision, object, doing),
        }
    }

    fn replace<'a>(&'a self, revision: &'a Key, object: K, doing: &'a str) -> BoxFuture<'a, Result<Arc<K>, Error>> {
        match self.scalers.has(revision) {
            true => self.own.replace(revision, object, doing),
            false => self.api.replace(revision, object, doing),
        }
    }

    fn delete<'a>(&'a self, revision: &'a Key, doing: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        match self.scalers.has(revision) {
            true => self.own.delete(revision, doing),
            false => self.api.delete(revision, doing),
        }
    }

    fn reference(&self, object: &K) -> OwnerReference {
        match self.scalers.has(&key_of(object)) {
            true => self.own.reference(object),
            false => self.api.reference(object),
        }
    }

    fn forget(&self, revision: &Key) {
        self.own.forget(revision);
    }

    fn outlives_process(&self, revision: &Key) -> bool {
        !self.scalers.has(revision)
    }
}
