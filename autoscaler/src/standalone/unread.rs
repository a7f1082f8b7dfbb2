//! Namespaces of which this process may not know all ZeroScalers.
//!
//! Where several namespaces are watched (`ZEROSCALE_NAMESPACES`), one whose rights are missing counts as listed, and empty
//! ([`common_runtime::watching`]): a process that starts meanwhile knows none of its ZeroScalers, and learns of them some
//! seconds after the rights are back. So before something is taken away from a ZeroScaler that is not known, the API
//! server is asked whether there is none.
//!
//! A question is one list of the metadata in a namespace, or of the one name if only one is missing. It is asked when
//! something is about to be taken away: once for each ZeroScaler that has ended, which has nothing after that. A namespace
//! that may not be read, of which there is no answer within [`ANSWERED_WITHIN`], or that has the ZeroScaler, is left as it is
//! for [`AGAIN`], and then asked about again. What other namespaces are to have waits for the answers, so all are asked at
//! once.
//!
//! # Odd cases
//!
//! - A namespace that is not among those that are looked at is not asked about: its ZeroScalers are nobody's here. Their
//!   port numbers stay theirs as long as EndpointSlices there name them ([`Unread::still_led`]).
//! - A namespace that was deleted with the Role in it looks like one whose rights are missing: what its ZeroScalers had
//!   stays theirs until it is taken out of `ZEROSCALE_NAMESPACES`.

use crate::cluster::error::Error;
use common::RevisionKey as Key;
use common::names::{LEADS_TO, LEADS_TO_ACTIVATORS};
use common_api::ZeroScaler;
use common_controller::{WriteError, code};
use common_runtime::namespaces::Namespaces;
use futures::future::join_all;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Time between two questions about a namespace in which nothing may be taken away.
pub(crate) const AGAIN: Duration = Duration::from_secs(60);
/// Longest wait for an answer.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// The answer to a question that others wait for, or that there was none in time.
pub(super) async fn answered<T>(
    doing: String,
    question: impl Future<Output = kube::Result<T>>,
) -> Result<T, WriteError> {
    match timeout(ANSWERED_WITHIN, question).await {
        Ok(answer) => answer.map_err(WriteError::api(doing)),
        Err(_) => Err(WriteError::NoAnswer { doing, within: ANSWERED_WITHIN }),
    }
}

/// Asks the API server, and remembers for a while where nothing may be taken away.
pub(crate) struct Unread {
    client: Client,
    /// Those that are looked at.
    namespaces: Namespaces,
    /// Until when a namespace is left as it is.
    until: Mutex<HashMap<String, Instant>>,
}

impl Unread {
    /// Nobody has asked yet.
    pub(crate) fn new(client: Client, namespaces: Namespaces) -> Self {
        Self { client, namespaces, until: Mutex::default() }
    }

    /// The namespaces in which nothing may be taken away, of those of `missing`: ZeroScalers that are not known, and their
    /// uids. Beside an error: those in which nobody has found out are among them.
    pub(super) async fn among(&self, missing: &BTreeMap<Key, String>) -> (BTreeSet<String>, Result<(), Error>) {
        let mut by_namespace: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
        for (key, uid) in missing.iter().filter(|(key, _)| self.is_looked_at(key.namespace())) {
            by_namespace.entry(key.namespace()).or_default().insert(key.name(), uid);
        }
        let questions: Vec<_> =
            by_namespace.iter().map(|(namespace, missing)| self.is_unread(namespace, missing)).collect();
        all_but_denied(by_namespace.keys().copied().zip(join_all(questions).await))
    }

    /// Returns the namespaces of `missing` that are not looked at, and in which EndpointSlices still lead to activators, or
    /// that do not answer. One that may not be read counts as deleted.
    pub(super) async fn still_led(&self, missing: &BTreeMap<Key, String>) -> (BTreeSet<String>, Result<(), Error>) {
        let is_unwatched = |namespace: &&str| self.namespaces.listed().is_some_and(|names| !names.contains(*namespace));
        let namespaces: BTreeSet<&str> = missing.keys().map(Key::namespace).filter(is_unwatched).collect();
        let answers = join_all(namespaces.iter().map(|namespace| self.is_led(namespace))).await;
        all_but_denied(namespaces.into_iter().zip(answers))
    }

    async fn is_led(&self, namespace: &str) -> Result<bool, Error> {
        if self.is_left_alone(namespace) {
            return Ok(true);
        }
        let ours = ListParams::default().labels(&format!("{LEADS_TO}={LEADS_TO_ACTIVATORS}")).limit(1);
        let slices = Api::<EndpointSlice>::namespaced(self.client.clone(), namespace);
        let doing = format!("failed to list EndpointSlices of {namespace}");
        let answer = match answered(doing, slices.list_metadata(&ours)).await {
            Ok(list) => Ok(!list.items.is_empty()),
            Err(WriteError::Api { source, .. }) if code(&source) == Some(403) => Ok(false),
            Err(error) => Err(error),
        };
        Ok(self.remembered(namespace, answer)?)
    }

    fn is_looked_at(&self, namespace: &str) -> bool {
        self.namespaces.listed().is_some_and(|names| names.contains(namespace))
    }

    fn is_left_alone(&self, namespace: &str) -> bool {
        self.until.lock().get(namespace).is_some_and(|until| Instant::now() < *until)
    }

    /// Whether one of these, by name and uid, is there, or nobody may say; as it was said last, if that was a moment ago.
    async fn is_unread(&self, namespace: &str, missing: &BTreeMap<&str, &str>) -> Result<bool, Error> {
        if self.is_left_alone(namespace) {
            return Ok(true);
        }
        let answer = self.ask(namespace, missing).await;
        Ok(self.remembered(namespace, answer)?)
    }

    fn remembered(&self, namespace: &str, answer: Result<bool, WriteError>) -> Result<bool, WriteError> {
        let mut until = self.until.lock();
        match answer {
            Ok(true) | Err(WriteError::NoAnswer { .. }) => until.insert(namespace.to_owned(), Instant::now() + AGAIN),
            Ok(false) => until.remove(namespace),
            Err(_) => None,
        };
        answer
    }

    async fn ask(&self, namespace: &str, missing: &BTreeMap<&str, &str>) -> Result<bool, WriteError> {
        let params = match missing.first_key_value() {
            Some((name, _)) if missing.len() == 1 => ListParams::default().fields(&format!("metadata.name={name}")),
            _ => ListParams::default(),
        };
        let scalers = Api::<ZeroScaler>::namespaced(self.client.clone(), namespace);
        let doing = format!("failed to list ZeroScalers of {namespace}");
        match answered(doing, scalers.list_metadata(&params)).await {
            Ok(list) => Ok(list.items.iter().any(|found| {
                let (name, uid) = (found.metadata.name.as_deref(), found.metadata.uid.as_deref());
                name.and_then(|name| missing.get(name)).is_some_and(|missing| uid == Some(*missing))
            })),
            Err(WriteError::Api { source, .. }) if code(&source) == Some(403) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Returns the namespaces for which the answer is yes, or there is none, and the first error.
fn all_but_denied<'a>(
    answers: impl Iterator<Item = (&'a str, Result<bool, Error>)>,
) -> (BTreeSet<String>, Result<(), Error>) {
    let (mut left, mut outcome) = (BTreeSet::new(), Ok(()));
    for (namespace, answer) in answers {
        if !matches!(answer, Ok(false)) {
            left.insert(namespace.to_owned());
        }
        outcome = outcome.and(answer.map(|_| ()));
    }
    (left, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower_test::mock;

    /// Goal: what a namespace that is not looked at any more has is kept while its slices lead here, and freed where there are
    /// none or nobody may look.
    #[tokio::test]
    async fn slices_of_a_dropped_namespace_are_asked_for() {
        let (service, mut server) = mock::pair::<Request<Body>, Response<Body>>();
        let unread = Unread::new(Client::new(service, "default"), Namespaces::only(["shop"]));
        let missing =
            ["ended", "forbidden", "led", "shop"].map(|namespace| (Key::new(namespace, "web"), "u".to_owned()));
        let missing = BTreeMap::from(missing);
        let answering = async {
            loop {
                let (request, respond) = server.next_request().await.expect("the client lives");
                let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
                assert!(path.contains("/endpointslices") && query.contains("activators"), "{path}?{query}");
                let items = if path.contains("/led/") { json!([{"metadata": {"name": "web"}}]) } else { json!([]) };
                let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
                let status = if path.contains("/forbidden/") { 403 } else { 200 };
                let failed = json!({"kind": "Status", "status": "Failure", "message": "", "reason": "", "code": 403});
                let body = if status == 403 { failed } else { list };
                let response = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
                respond.send_response(response.expect("a response"));
            }
        };
        let (led, outcome) = tokio::select! {
            answer = unread.still_led(&missing) => answer,
            () = answering => unreachable!("it answers for ever"),
        };
        assert_eq!((led, outcome.is_ok()), (BTreeSet::from(["led".to_owned()]), true));
    }

    /// Goal: namespaces of which there is no answer keep nobody waiting for longer than one answer may take, and for a while
    /// not at all; the others are known.
    #[tokio::test(start_paused = true)]
    async fn who_is_not_answered_for_keeps_the_others_waiting_for_seconds() {
        let (service, mut server) = mock::pair::<Request<Body>, Response<Body>>();
        let unread = Unread::new(Client::new(service, "default"), Namespaces::only(["mute", "shop", "silent"]));
        let missing = ["mute", "shop", "silent"].map(|namespace| (Key::new(namespace, "web"), "u".to_owned()));
        let missing = BTreeMap::from(missing);
        let list =
            json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScalerList", "metadata": {}, "items": []});
        let mut asked = Vec::new();
        let answering = async {
            let mut unanswered = Vec::new();
            loop {
                let (request, respond) = server.next_request().await.expect("the client lives");
                let path = request.uri().path().to_owned();
                if path.contains("/shop/") {
                    respond.send_response(Response::new(Body::from(list.to_string().into_bytes())));
                } else {
                    unanswered.push(respond);
                }
                asked.push(path);
            }
        };
        let looks = async {
            for expected in [ANSWERED_WITHIN, Duration::ZERO] {
                let begun = Instant::now();
                let (left, outcome) = unread.among(&missing).await;
                assert_eq!(begun.elapsed().as_secs(), expected.as_secs());
                assert_eq!(left, BTreeSet::from(["mute", "silent"].map(str::to_owned)));
                assert_eq!(outcome.is_err(), !expected.is_zero(), "{outcome:?}");
            }
        };
        tokio::select! {
            () = looks => {}
            () = answering => {}
        }
        let of = |namespace: &str| asked.iter().filter(|path| path.contains(&format!("/{namespace}/"))).count();
        assert_eq!(["mute", "shop", "silent"].map(of), [1, 2, 1], "{asked:?}");
    }
}
