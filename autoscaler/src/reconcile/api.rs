//! Writes of objects, each shown to readers as soon as it is answered.
//!
//! A write says how long it may take, in the `timeout` parameter that API servers heed: one that this process can no
//! longer call back, because it stands still, is given up by the API server itself.

use super::error::{Error, code};
use super::turns::Place;
use super::world::store::{Store, key_of};
use crate::scale::Leadership;
use common::RevisionKey as Key;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::request;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Longest wait for the answer to one write, however long the lease lasts.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A namespaced kind that we write.
pub(crate) trait Written:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Written for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The API server, for one write that may take so long.
#[derive(Clone)]
pub(crate) struct Bounded {
    /// The API server.
    pub(crate) client: Client,
    /// How long it may take over it.
    pub(crate) within: Duration,
}

/// Writes on behalf of what this process leads.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    /// The API server.
    pub(crate) client: &'a Client,
    /// Whether this process leads it.
    pub(crate) leadership: &'a dyn Leadership,
    /// Where writes take turns; none: they wait for nobody.
    pub(crate) turns: Option<Place<'a>>,
}

impl Writer<'_> {
    /// Every write on behalf of a revision, when it is its turn: begun only while our lease is certain to outlast it,
    /// and given up before the lease ends, here and by the API server.
    ///
    /// # Errors
    /// The lease may end too soon, no answer came in time, or whatever `write` says.
    pub(crate) async fn write<T>(
        self,
        revision: &Key,
        doing: &str,
        write: impl AsyncFnOnce(Bounded) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(place) = self.turns {
            place.turn(revision).await;
        }
        let guard = self.leadership.begin_write(revision).ok_or(Error::LeaseEnds)?;
        let left = guard.deadline().map_or(WRITE_TIMEOUT, |deadline| deadline - Instant::now());
        let within = left.min(WRITE_TIMEOUT);
        let outcome = timeout(within, write(Bounded { client: self.client.clone(), within })).await;
        let outcome = outcome.map_err(|_| Error::NoAnswer { doing: format!("{doing} {}", revision.name()), within })?;
        guard.answered();
        outcome
    }
}

type Built = Result<http::Request<Vec<u8>>, request::Error>;

impl Bounded {
    /// Creates `object`.
    ///
    /// # Errors
    /// The API server's, `doing` and the name before it.
    pub(crate) async fn create<K: Written>(&self, store: &Store<K>, object: &K, doing: &str) -> Result<K, Error> {
        let key = key_of(object);
        let request = bytes(object).and_then(|data| requests::<K>(&key).create(&PostParams::default(), data));
        let created = self.send(request).await.map_err(Error::api(format!("{doing} {}", key.name())))?;
        Ok(offer(store, &key, created))
    }

    /// Replaces an object by `object`, which carries the version that it was made from.
    ///
    /// # Errors
    /// The API server's, `doing` and the name before it; a conflict if somebody wrote first.
    pub(crate) async fn replace<K: Written>(&self, store: &Store<K>, object: &K, doing: &str) -> Result<K, Error> {
        let key = key_of(object);
        let replace = |data| requests::<K>(&key).replace(key.name(), &PostParams::default(), data);
        let request = bytes(object).and_then(replace);
        let replaced = self.send(request).await.map_err(Error::api(format!("{doing} {}", key.name())))?;
        Ok(offer(store, &key, replaced))
    }

    /// Replaces the status of an object.
    ///
    /// # Errors
    /// The API server's; a conflict if somebody wrote first.
    pub(crate) async fn replace_status<K: Written>(&self, object: &K) -> kube::Result<K> {
        let key = key_of(object);
        let replace =
            |data| requests::<K>(&key).replace_subresource("status", key.name(), &PostParams::default(), data);
        self.send(bytes(object).and_then(replace)).await
    }

    /// Merges `patch` into an object.
    ///
    /// # Errors
    /// The API server's.
    pub(crate) async fn merge<K: Written>(&self, key: &Key, patch: &serde_json::Value) -> kube::Result<K> {
        let request = requests::<K>(key).patch(key.name(), &PatchParams::default(), &Patch::Merge(patch));
        self.send(request).await
    }

    /// Deletes an object; one that is not there is deleted already.
    ///
    /// # Errors
    /// The API server's, `doing` and the name before it.
    pub(crate) async fn delete<K: Written>(&self, store: &Store<K>, key: &Key, doing: &str) -> Result<(), Error> {
        self.remove::<K>(key).await.map_err(Error::api(format!("{doing} {}", key.name())))?;
        store.withdraw(key);
        Ok(())
    }

    /// Deletes an object of which nothing is held here.
    ///
    /// # Errors
    /// The API server's.
    pub(crate) async fn remove<K: Written>(&self, key: &Key) -> kube::Result<()> {
        match self.send::<serde_json::Value>(requests::<K>(key).delete(key.name(), &DeleteParams::background())).await {
            Err(error) if code(&error) != Some(404) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends any request.
    ///
    /// # Errors
    /// The API server's, or the request could not be built.
    pub(crate) async fn send<T: DeserializeOwned>(&self, request: Built) -> kube::Result<T> {
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        let uri = request.uri();
        let sign = if uri.query().is_none() { "?" } else { "&" };
        let bounded = format!("{uri}{sign}timeout={}ms", self.within.as_millis().max(1)).parse();
        *request.uri_mut() = bounded.map_err(|error: http::uri::InvalidUri| kube::Error::HttpError(error.into()))?;
        self.client.request(request).await
    }
}

fn requests<K: Written>(key: &Key) -> request::Request {
    request::Request::new(K::url_path(&(), Some(key.namespace())))
}

fn bytes<K: Written>(object: &K) -> Result<Vec<u8>, request::Error> {
    serde_json::to_vec(object).map_err(request::Error::SerializeBody)
}

fn offer<K: Written>(store: &Store<K>, key: &Key, object: K) -> K {
    let mut held = object.clone();
    held.meta_mut().managed_fields = None;
    let version = object.meta().resource_version.clone().unwrap_or_default();
    store.offer(key, &version, held);
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_api::PodAutoscaler;
    use kube::client::Body;
    use serde_json::json;

    /// Goal: the API server is told when to give a write up, whatever else the request says.
    #[tokio::test]
    async fn a_write_says_how_long_it_may_take() {
        let (service, mut server) = tower_test::mock::pair::<http::Request<Body>, http::Response<Body>>();
        let api = Bounded { client: Client::new(service, "default"), within: Duration::from_millis(1500) };
        let key = Key::new("ns", "hello");
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        let play = async {
            let (request, respond) = server.next_request().await.expect("the client lives");
            assert!(request.uri().path().ends_with("/namespaces/ns/podautoscalers/hello"), "{}", request.uri());
            let query = request.uri().query().unwrap_or_default();
            assert!(query.split('&').any(|pair| pair == "timeout=1500ms"), "{query}");
            respond.send_response(http::Response::new(Body::from(br#"{"spec": {"scaleTargetRef": {}}}"#.to_vec())));
        };
        let (answer, ()) = tokio::join!(api.merge::<PodAutoscaler>(&key, &patch), play);
        answer.expect_err("a PodAutoscaler without a protocol"); // What came back was read as one.
    }
}
