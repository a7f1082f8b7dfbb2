//! Writes of objects, statuses and events, on behalf of revisions that this process owns.

use super::error::Result;
use common::RevisionKey as Key;
use common::write_rate::WriteClass;
use common_controller::{Kind, Leadership, Pacing, Recorder, Store, WorkQueue, WriteLimiter, Writer};
use common_runtime::clock::Clock;
use kube::Client;
use std::sync::Arc;

/// Write access, shared by all controllers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Writes {
    pub(crate) client: Client,
    pub(crate) leadership: Arc<dyn Leadership>,
    pub(crate) limiter: WriteLimiter,
    /// Queue of decisions. If a decision waits for a reconcile to end, the reconcile's writes get its urgency.
    pub(crate) decisions: WorkQueue<Key>,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
}

impl Writes {
    /// Creates an object on behalf of the revision `led`. Errors are prefixed with `doing`.
    pub(crate) async fn create<K: Kind>(&self, led: &Key, store: &Store<K>, object: &K, doing: &str) -> Result<K> {
        Ok(self.writer_of(class_of::<K>()).create(led, store, object, doing, || true).await?)
    }

    /// Replaces an object on behalf of the revision `led`. Errors are prefixed with `doing`.
    pub(crate) async fn replace<K: Kind>(&self, led: &Key, store: &Store<K>, object: &K, doing: &str) -> Result<K> {
        Ok(self.writer_of(class_of::<K>()).replace(led, store, object, doing, || true).await?)
    }

    /// Deletes an object on behalf of the revision `led`. Errors are prefixed with `doing`.
    pub(crate) async fn delete<K: Kind>(&self, led: &Key, store: &Store<K>, key: &Key, doing: &str) -> Result<()> {
        Ok(self.writer().delete(led, store, key, doing).await?)
    }

    /// Returns a writer for objects and statuses.
    pub(crate) fn writer(&self) -> Writer<'_> {
        self.writer_of(WriteClass::Object)
    }

    pub(crate) fn writer_of(&self, class: WriteClass) -> Writer<'_> {
        let pacing = Some(Pacing { limiter: &self.limiter, class, decisions: &self.decisions });
        Writer { client: &self.client, leadership: &*self.leadership, pacing }
    }
}

/// Returns the urgency of writes of a kind. Late EndpointSlices lead to pods that are gone, a ServerlessService
/// determines whether requests pass through activators, and a NetworkPolicy which clients may connect to activators.
fn class_of<K: Kind>() -> WriteClass {
    match &*K::kind(&()) {
        "EndpointSlice" | "NetworkPolicy" | "ServerlessService" => WriteClass::Scale,
        _ => WriteClass::Object,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_api::{Metric, ServerlessService};
    use k8s_openapi::api::discovery::v1::EndpointSlice;

    /// Goal: writes that change the routing do not wait behind statuses.
    #[test]
    fn routing_writes_are_as_urgent_as_replicas() {
        assert_eq!(class_of::<EndpointSlice>(), WriteClass::Scale);
        assert_eq!(class_of::<ServerlessService>(), WriteClass::Scale);
        assert_eq!(class_of::<Metric>(), WriteClass::Object);
    }
}
