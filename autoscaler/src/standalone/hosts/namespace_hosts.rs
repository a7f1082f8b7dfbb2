//! Namespaces of the cluster, and the hosts that each may have.
//!
//! By default all namespaces are watched. If only some namespaces are configured, each is read every [`READ_INTERVAL`],
//! because a Role in a namespace can allow a read but not a watch. If reading is forbidden, the namespace may claim no
//! host, unless its confinement was known before: that stays in force.

use common::annotations;
use common::hosts::claims::Confinement;
use common_controller::{ObjectKey, Store};
use common_runtime::api_server;
use common_runtime::failure_log::FailureLog;
use common_runtime::namespaces::Namespaces;
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::time::Duration;
use tokio::time::sleep;

/// Interval between two reads of a namespace.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two reads until each namespace has been read once.
const RETRY: Duration = Duration::from_secs(1);

/// Feeds `store` forever.
pub(crate) async fn follow(store: &Store<Confinement>, client: &Client, namespaces: &Namespaces) {
    let api: Api<Namespace> = Api::all(client.clone());
    let Some(names) = namespaces.listed() else {
        return store.follow(api, watcher::Config::default(), |namespace| confinement(&namespace)).await;
    };
    let (mut unseen, mut failures) = (names.clone(), FailureLog::for_operation("the read of namespaces".to_owned()));
    loop {
        for name in names {
            let key = ObjectKey::new("", name);
            match api.get_opt(name).await {
                Ok(Some(found)) => {
                    store.apply(&key, &found.resource_version().unwrap_or_default(), Some(confinement(&found)));
                }
                Ok(None) => store.apply(&key, "", None),
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    if store.get(&key).is_none() {
                        store.apply(&key, "", Some(Confinement::To(Vec::new())));
                    }
                }
                Err(error) => {
                    if !api_server::is_reported(&error) {
                        failures.failed(&error);
                    }
                    continue; // The state of the namespace is still unknown.
                }
            }
            failures.recovered();
            unseen.remove(name);
        }
        if unseen.is_empty() {
            store.listed();
        }
        sleep(if unseen.is_empty() { READ_INTERVAL } else { RETRY }).await;
    }
}

fn confinement(namespace: &Namespace) -> Confinement {
    Confinement::read(namespace.annotations().get(annotations::HOSTS.name).map(String::as_str))
}
