//! Writes objects: paced, guarded by the lease, and visible to readers as soon as the response arrives.
//!
//! A write waits for its token ([`Pacing`]), begins only while our lease is certain to outlast it ([`Leadership`]), and
//! is cancelled before the lease ends. It sends its time limit in the `timeout` parameter, which API servers observe.
//! So the API server cancels a write even if this process is suspended and cannot.

use crate::ObjectKey;
use crate::error::{WriteError, code};
use crate::leadership::Leadership;
use crate::limiter::Pacing;
use crate::store::{Store, key_of};
use common_runtime::watching::Watched;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::request;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Longest wait for the response to one write, however long the lease lasts.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Namespaced kind of objects that we write.
pub trait Kind: Watched + Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Serialize + Sync {}

impl<K: Watched + Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Serialize + Sync> Kind for K {}

/// Access to the API server for one write with a time limit.
#[derive(Clone)]
pub struct BoundedApi {
    /// Client of the API server.
    pub client: Client,
    /// Time limit of the write.
    pub within: Duration,
}

/// Writes on behalf of objects that this process leads.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// Client of the API server.
    pub client: &'a Client,
    /// Leadership of this process.
    pub leadership: &'a dyn Leadership,
    /// Pacing of writes; `None`: unpaced.
    pub pacing: Option<Pacing<'a>>,
}

impl Writer<'_> {
    /// Runs a write on behalf of an object that this process leads, or of an object that belongs to such an object. The
    /// write begins when it has its token and only while our lease is certain to outlast it. It is cancelled before the
    /// lease ends, here and by the API server. Fails if the lease may end too soon, if no response came in time, or
    /// with the error of `write`.
    pub async fn write<T>(
        self,
        led: &ObjectKey,
        doing: &str,
        write: impl AsyncFnOnce(BoundedApi) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        if let Some(pacing) = self.pacing {
            pacing.ready(led).await;
        }
        let outcome = async {
            let guard = self.leadership.begin_write(led).ok_or(WriteError::LeaseEnds)?;
            let left = guard.deadline().map_or(WRITE_TIMEOUT, |deadline| deadline - Instant::now());
            let within = left.min(WRITE_TIMEOUT);
            let outcome = timeout(within, write(BoundedApi { client: self.client.clone(), within })).await;
            let unanswered = |_| Err(WriteError::NoAnswer { doing: format!("{doing} {}", led.name()), within });
            let outcome = outcome.unwrap_or_else(unanswered);
            if !outcome.as_ref().is_err_and(WriteError::is_unanswered) {
                guard.answered();
            }
            outcome
        };
        let outcome = outcome.await;
        if let Some(Pacing { limiter, class, .. }) = self.pacing {
            limiter.write_tally().ended(class, &outcome);
        }
        outcome
    }

    /// Creates `object` on behalf of `led` if `still` returns true once the write has its token, and shows it in
    /// `store`. Fails as [`write`](Self::write) does, or with the API server's error, prefixed with `doing` and the
    /// name; with [`WriteError::Outdated`] if `still` returns false.
    pub async fn create<K: Kind>(
        self,
        led: &ObjectKey,
        store: &Store<K>,
        object: &K,
        doing: &str,
        still: impl FnOnce() -> bool,
    ) -> Result<K, WriteError> {
        self.put(led, store, object, doing, still, async |api| api.create(object).await).await
    }

    /// Replaces an object by `object` on behalf of `led` if `still` returns true once the write has its token, and
    /// shows it in `store`. `object` carries the version that it was made from. Fails as [`create`](Self::create) does;
    /// with a conflict if another writer was first.
    pub async fn replace<K: Kind>(
        self,
        led: &ObjectKey,
        store: &Store<K>,
        object: &K,
        doing: &str,
        still: impl FnOnce() -> bool,
    ) -> Result<K, WriteError> {
        self.put(led, store, object, doing, still, async |api| api.replace(object).await).await
    }

    /// Sends `object` if `still` returns true once the write has its token, and shows the response in `store`.
    async fn put<K: Kind>(
        self,
        led: &ObjectKey,
        store: &Store<K>,
        object: &K,
        doing: &str,
        still: impl FnOnce() -> bool,
        send: impl AsyncFnOnce(BoundedApi) -> kube::Result<K>,
    ) -> Result<K, WriteError> {
        let key = key_of(object);
        tracing::debug!(object = %key, kind = %K::kind(&()), doing, "write");
        let put = async |api: BoundedApi| match still() {
            true => send(api).await.map_err(named(doing, &key)),
            false => Err(WriteError::Outdated { doing: format!("{doing} {}", key.name()) }),
        };
        let written = self.write(led, doing, put).await?;
        store.offer_object(&written);
        Ok(written)
    }

    /// Deletes an object on behalf of `led`. If `store` knows the object, only that one is deleted, not a successor of
    /// the same name; otherwise any object of that name. Succeeds if there is none. Fails as [`write`](Self::write)
    /// does, or with the API server's error, prefixed with `doing` and the name; with a conflict if a successor exists.
    pub async fn delete<K: Kind>(
        self,
        led: &ObjectKey,
        store: &Store<K>,
        key: &ObjectKey,
        doing: &str,
    ) -> Result<(), WriteError> {
        tracing::debug!(object = %key, kind = %K::kind(&()), "delete");
        let uid = store.get(key).and_then(|known| known.meta().uid.clone()); // Read before the wait for a token.
        let delete = async |api: BoundedApi| api.delete::<K>(key, uid.as_deref()).await.map_err(named(doing, key));
        self.write(led, doing, delete).await?;
        store.withdraw(key);
        Ok(())
    }
}

fn named(doing: &str, key: &ObjectKey) -> impl FnOnce(kube::Error) -> WriteError {
    WriteError::api(format!("{doing} {}", key.name()))
}

type Built = Result<http::Request<Vec<u8>>, request::Error>;

/// All methods return the API server's error.
impl BoundedApi {
    /// Creates `object`.
    pub async fn create<K: Kind>(&self, object: &K) -> kube::Result<K> {
        let create = |data| requests::<K>(&key_of(object)).create(&PostParams::default(), data);
        self.send(bytes(object).and_then(create)).await
    }

    /// Replaces an object by `object`. If `object` carries no version, any existing version is replaced. Otherwise the
    /// error is a conflict if another writer was first.
    pub async fn replace<K: Kind>(&self, object: &K) -> kube::Result<K> {
        let key = key_of(object);
        let replace = |data| requests::<K>(&key).replace(key.name(), &PostParams::default(), data);
        self.send(bytes(object).and_then(replace)).await
    }

    /// Replaces the status of an object. The error is a conflict if another writer was first.
    pub async fn replace_status<K: Kind>(&self, object: &K) -> kube::Result<K> {
        let key = key_of(object);
        let replace =
            |data| requests::<K>(&key).replace_subresource("status", key.name(), &PostParams::default(), data);
        self.send(bytes(object).and_then(replace)).await
    }

    /// Merges `patch` into an object.
    pub async fn merge<K: Kind>(&self, key: &ObjectKey, patch: &serde_json::Value) -> kube::Result<K> {
        let request = requests::<K>(key).patch(key.name(), &PatchParams::default(), &Patch::Merge(patch));
        self.send(request).await
    }

    /// Merges `patch` into the status of an object. The patch begins at the top of the object.
    pub async fn merge_status<K: Kind>(&self, key: &ObjectKey, patch: &serde_json::Value) -> kube::Result<K> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.send(requests::<K>(key).patch_subresource("status", key.name(), &params, &patch)).await
    }

    /// Deletes an object, and its dependents in the background. If `uid` is given, only the object with that uid is
    /// deleted. Succeeds if there is none. Returns the object if its deletion has only begun.
    pub async fn delete<K: Kind>(&self, key: &ObjectKey, uid: Option<&str>) -> kube::Result<Option<K>> {
        let preconditions = uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::background() };
        match self.send::<serde_json::Value>(requests::<K>(key).delete(key.name(), &params)).await {
            Ok(answer) => {
                // A response that is not an object of this kind is a Status.
                let object: Option<K> = serde_json::from_value(answer).ok();
                Ok(object.filter(|object| object.meta().deletion_timestamp.is_some()))
            }
            Err(error) if code(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends any request. Also fails if the request could not be built.
    pub async fn send<T: DeserializeOwned>(&self, request: Built) -> kube::Result<T> {
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        let uri = request.uri();
        let sign = if uri.query().is_none() { "?" } else { "&" };
        let bounded = format!("{uri}{sign}timeout={}ms", self.within.as_millis().max(1)).parse();
        *request.uri_mut() = bounded.map_err(|error: http::uri::InvalidUri| kube::Error::HttpError(error.into()))?;
        self.client.request(request).await
    }
}

fn requests<K: Kind>(key: &ObjectKey) -> request::Request {
    request::Request::new(K::url_path(&(), Some(key.namespace())))
}

fn bytes<K: Kind>(object: &K) -> Result<Vec<u8>, request::Error> {
    serde_json::to_vec(object).map_err(request::Error::SerializeBody)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;
    use crate::leadership::Alone;
    use crate::shares::Shares;
    use crate::tests::object;
    use common_api::PodAutoscaler;
    use common_runtime::lease::{CANCEL_MARGIN, Ownership};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use kube::core::Status;
    use serde_json::json;

    /// Goal: the API server gets the time limit, whatever else the request contains.
    #[tokio::test]
    async fn a_write_sends_its_time_limit() {
        let (service, mut server) = tower_test::mock::pair::<http::Request<Body>, http::Response<Body>>();
        let api = BoundedApi { client: Client::new(service, "default"), within: Duration::from_millis(1500) };
        let key = ObjectKey::new("ns", "hello");
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        let play = async {
            let (request, respond) = server.next_request().await.expect("the client lives");
            assert!(request.uri().path().ends_with("/namespaces/ns/podautoscalers/hello"), "{}", request.uri());
            let query = request.uri().query().unwrap_or_default();
            assert!(query.split('&').any(|pair| pair == "timeout=1500ms"), "{query}");
            respond.send_response(http::Response::new(Body::from(br#"{"spec": {"scaleTargetRef": {}}}"#.to_vec())));
        };
        let (answer, ()) = tokio::join!(api.merge::<PodAutoscaler>(&key, &patch), play);
        answer.expect_err("a PodAutoscaler without a protocol"); // The response was parsed as a PodAutoscaler.
    }

    /// Goal: such a write may still be carried out. Method: count the tasks that keep guards alive.
    #[tokio::test(start_paused = true)]
    async fn a_lease_waits_only_for_writes_without_a_response() {
        let (service, _server) = tower_test::mock::pair::<http::Request<Body>, http::Response<Body>>();
        let client = Client::new(service, "default");
        let (assign, ownership) = Ownership::manual(1);
        assign.set(0, None, true);
        let shares = Shares::new(vec!["a".to_owned()], ownership);
        let writer = Writer { client: &client, leadership: &shares, pacing: None };
        let refused = |code| {
            let status = Status { code, ..Status::default() };
            Err(WriteError::api("patch")(kube::Error::Api(Box::new(status))))
        };
        let broken = Err(WriteError::api("patch")(kube::Error::Service("the connection is broken".into())));
        let unanswered = Err(WriteError::NoAnswer { doing: "patch".to_owned(), within: WRITE_TIMEOUT });
        let outdated = Err(WriteError::Outdated { doing: "patch".to_owned() });
        let rows = [
            (Ok(()), 0),
            (refused(409), 0),
            (refused(503), 0),
            (outdated, 0), // Nothing was sent.
            (broken, 1),
            (unanswered, 1),
        ];
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        for (outcome, waiting) in rows {
            let (before, text) = (alive(), format!("{outcome:?}"));
            let _ = writer.write(&ObjectKey::new("ns", "hello"), "patch", async move |_: BoundedApi| outcome).await;
            assert_eq!(alive(), before + waiting, "{text}");
            tokio::time::sleep(CANCEL_MARGIN * 2).await;
        }
    }

    #[tokio::test]
    async fn a_deletion_removes_the_known_object_and_no_successor() {
        let (service, mut server) = tower_test::mock::pair::<http::Request<Body>, http::Response<Body>>();
        let client = Client::new(service, "default");
        let writer = Writer { client: &client, leadership: &Alone, pacing: None };
        let (store, key) = (Store::<ConfigMap>::new(|_, _, _| {}), ObjectKey::new("ns", "hello"));
        for (known, code) in [(None, 200_u16), (Some("u1"), 200), (Some("u1"), 409)] {
            if let Some(uid) = known {
                store.apply(&key, "1", Some(object("hello", uid, 1)));
            }
            let play = async {
                let (request, respond) = server.next_request().await.expect("the client lives");
                let options = request.into_body().collect_bytes().await.expect("a body");
                let status = json!({"kind": "Status", "code": code, "message": "another uid"});
                let answer = http::Response::builder().status(code).body(Body::from(status.to_string().into_bytes()));
                respond.send_response(answer.expect("a response"));
                serde_json::from_slice::<serde_json::Value>(&options).expect("JSON")
            };
            let (deleted, options) = tokio::join!(writer.delete(&key, &store, &key, "failed to delete"), play);
            assert_eq!(options["preconditions"]["uid"].as_str(), known, "{options}");
            assert_eq!(deleted.map_err(|error| error.is_conflict()), if code == 200 { Ok(()) } else { Err(true) });
        }
    }
}
