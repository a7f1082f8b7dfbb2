//! Namespaces whose ZeroScalers may be unknown to this process.
//!
//! If several namespaces are watched (`ZEROSCALE_NAMESPACES`), a namespace without permissions counts as listed and
//! empty ([`common_runtime::watching`]). A process that starts in that state does not know the ZeroScalers of the
//! namespace; it learns of them some seconds after the permissions return. Therefore a query to the API server checks
//! whether an unknown ZeroScaler exists before anything is taken away from it.
//!
//! A query lists the metadata of one namespace, or of one name if only one ZeroScaler is missing. It is sent when
//! something is about to be taken away, once for each ZeroScaler that has ended, since nothing remains to take away
//! after that. A namespace stays unchanged for [`QUERY_INTERVAL`], and is then queried again, in three cases: it may
//! not be read, it gives no response within [`QUERY_TIMEOUT`], or it has the ZeroScaler. Changes for other namespaces
//! wait for the responses, so all queries are sent at once.
//!
//! # Edge cases
//!
//! - A namespace that is not watched is not queried, because this process does not serve its ZeroScalers. Their port
//!   numbers stay allocated as long as EndpointSlices of the namespace name them.
//! - A namespace that was deleted together with its Role looks like a namespace without permissions. Its ZeroScalers
//!   keep their hosts and numbers until the namespace is removed from `ZEROSCALE_NAMESPACES`.

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

/// Interval between two queries about a namespace in which nothing may be taken away.
pub(crate) const QUERY_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum wait for a response.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits for the response to a query that delays other work, within [`QUERY_TIMEOUT`].
pub(super) async fn with_timeout<T>(
    doing: String,
    question: impl Future<Output = kube::Result<T>>,
) -> Result<T, WriteError> {
    match timeout(QUERY_TIMEOUT, question).await {
        Ok(answer) => answer.map_err(WriteError::api(doing)),
        Err(_) => Err(WriteError::NoAnswer { doing, within: QUERY_TIMEOUT }),
    }
}

/// Queries the API server, and remembers for a while the namespaces in which nothing may be taken away.
pub(crate) struct UnlistedNamespaces {
    client: Client,
    namespaces: Namespaces,
    /// Time until which a namespace stays unchanged.
    until: Mutex<HashMap<String, Instant>>,
}

impl UnlistedNamespaces {
    /// Builds a value without earlier queries.
    pub(crate) fn new(client: Client, namespaces: Namespaces) -> Self {
        Self { client, namespaces, until: Mutex::default() }
    }

    /// Returns the namespaces of `missing` in which nothing may be taken away. `missing` holds unknown ZeroScalers and
    /// their uids. With `keeps_led`, this includes unwatched namespaces in which EndpointSlices still lead to
    /// activators. If a query fails, its namespace is in the result and the first error is returned beside it.
    pub(super) async fn protected(
        &self,
        missing: &BTreeMap<Key, String>,
        keeps_led: bool,
    ) -> (BTreeSet<String>, Result<(), Error>) {
        let (mut protected, mut outcome) = (BTreeSet::new(), Ok(()));
        let Some(watched) = self.namespaces.listed() else { return (protected, outcome) };
        let mut by_namespace: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
        for (key, uid) in missing.iter().filter(|(key, _)| keeps_led || watched.contains(key.namespace())) {
            by_namespace.entry(key.namespace()).or_default().insert(key.name(), uid);
        }
        let questions = by_namespace.iter().map(|(namespace, missing)| {
            let missing = Some(missing).filter(|_| watched.contains(*namespace));
            self.is_protected(namespace, missing)
        });
        for (namespace, answer) in by_namespace.keys().zip(join_all(questions).await) {
            if !matches!(answer, Ok(false)) {
                protected.insert((*namespace).to_owned());
            }
            outcome = outcome.and(answer.map(|_| ()));
        }
        (protected, outcome)
    }

    /// Reports whether one of these ZeroScalers of a watched namespace, by name and uid, exists or may not be read.
    /// `None`: the namespace is not watched; reports whether its EndpointSlices lead to activators. If they may not be
    /// read, the namespace counts as deleted. Repeats a positive response that is less than [`QUERY_INTERVAL`] old.
    async fn is_protected(&self, namespace: &str, missing: Option<&BTreeMap<&str, &str>>) -> Result<bool, Error> {
        if self.until.lock().get(namespace).is_some_and(|until| Instant::now() < *until) {
            return Ok(true);
        }
        let answer = if let Some(missing) = missing {
            let params = match missing.first_key_value() {
                Some((name, _)) if missing.len() == 1 => ListParams::default().fields(&format!("metadata.name={name}")),
                _ => ListParams::default(),
            };
            let scalers = Api::<ZeroScaler>::namespaced(self.client.clone(), namespace);
            let doing = format!("failed to list ZeroScalers of {namespace}");
            let list = with_timeout(doing, scalers.list_metadata(&params)).await;
            list.map(|list| {
                list.items.iter().any(|found| {
                    let (name, uid) = (found.metadata.name.as_deref(), found.metadata.uid.as_deref());
                    name.and_then(|name| missing.get(name)).is_some_and(|missing| uid == Some(*missing))
                })
            })
        } else {
            let ours = ListParams::default().labels(&format!("{LEADS_TO}={LEADS_TO_ACTIVATORS}")).limit(1);
            let slices = Api::<EndpointSlice>::namespaced(self.client.clone(), namespace);
            let doing = format!("failed to list EndpointSlices of {namespace}");
            with_timeout(doing, slices.list_metadata(&ours)).await.map(|list| !list.items.is_empty())
        };
        let answer = match answer {
            Err(WriteError::Api { source, .. }) if code(&source) == Some(403) => Ok(missing.is_some()),
            answer => answer,
        };
        let mut until = self.until.lock();
        match answer {
            Ok(true) | Err(WriteError::NoAnswer { .. }) => {
                until.insert(namespace.to_owned(), Instant::now() + QUERY_INTERVAL)
            }
            Ok(false) => until.remove(namespace),
            Err(_) => None,
        };
        Ok(answer?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server;
    use serde_json::json;

    /// Goal: the numbers of a namespace that is no longer watched are kept while its slices lead to activators. They
    /// are released if there are no such slices or the namespace may not be read.
    #[tokio::test]
    async fn slices_of_an_unwatched_namespace_keep_its_numbers() {
        let (client, _) = api_server::client(|request| {
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            assert!(path.contains("/endpointslices") && query.contains("activators"), "{path}?{query}");
            let items = if path.contains("/led/") { json!([{"metadata": {"name": "web"}}]) } else { json!([]) };
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            let failed = json!({"kind": "Status", "status": "Failure", "message": "", "reason": "", "code": 403});
            Some(if path.contains("/forbidden/") { (403, failed) } else { (200, list) })
        });
        let unlisted = UnlistedNamespaces::new(client, Namespaces::only(["shop"]));
        let (led, outcome) = unlisted.protected(&workloads(["ended", "forbidden", "led"]), true).await;
        assert_eq!((led, outcome.is_ok()), (BTreeSet::from(["led".to_owned()]), true));
    }

    /// Goal: namespaces without a response delay other work only for the time limit of one response, and then not at
    /// all for a while. The other namespaces are known.
    #[tokio::test(start_paused = true)]
    async fn a_namespace_without_a_response_delays_others_for_one_timeout() {
        let names = ["mute", "shop", "silent"];
        let list =
            json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScalerList", "metadata": {}, "items": []});
        let (client, requests) =
            api_server::client(move |request| request.uri().path().contains("/shop/").then(|| (200, list.clone())));
        let unlisted = UnlistedNamespaces::new(client, Namespaces::only(names));
        for expected in [QUERY_TIMEOUT, Duration::ZERO] {
            let begun = Instant::now();
            let (left, outcome) = unlisted.protected(&workloads(names), false).await;
            assert_eq!(begun.elapsed().as_secs(), expected.as_secs());
            assert_eq!(left, BTreeSet::from(["mute", "silent"].map(str::to_owned)));
            assert_eq!(outcome.is_err(), !expected.is_zero(), "{outcome:?}");
        }
        let requests = requests.lock();
        let of = |namespace: &str| requests.iter().filter(|line| line.contains(&format!("/{namespace}/"))).count();
        assert_eq!(names.map(of), [1, 2, 1], "{requests:?}");
    }

    /// Returns a workload in each of these namespaces.
    fn workloads(namespaces: [&str; 3]) -> BTreeMap<Key, String> {
        namespaces.map(|namespace| (Key::new(namespace, "web"), "u".to_owned())).into()
    }
}
