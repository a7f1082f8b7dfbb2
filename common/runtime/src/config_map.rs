//! Live configuration: ConfigMaps, parsed, as values that always hold the last good version.
//!
//! One watch on the system namespace feeds all subscriptions. An update that does not parse is refused with its key
//! and value, and the former configuration stays in force. A map that is missing means defaults: upstream refuses to
//! start then, which nobody can depend on, and a standalone install should work with none.

use crate::watching;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

type Data = BTreeMap<String, String>;
type Deliver = Box<dyn Fn(&Data) + Send + Sync>;

/// Subscriptions to the ConfigMaps of one namespace.
#[derive(Default)]
pub struct ConfigMaps {
    subscriptions: BTreeMap<String, Vec<Deliver>>,
}

impl ConfigMaps {
    /// Subscribes to `name`. The value is `default` until the map has been seen, and again when it is deleted.
    pub fn subscribe<T, E>(
        &mut self,
        name: &str,
        default: T,
        parse: impl Fn(&Data) -> Result<T, E> + Send + Sync + 'static,
    ) -> watch::Receiver<Arc<T>>
    where
        T: Send + Sync + PartialEq + 'static,
        E: Display,
    {
        let (sender, receiver) = watch::channel(Arc::new(default));
        let owned = name.to_owned();
        let deliver: Deliver = Box::new(move |data| match parse(data) {
            Ok(value) => {
                sender.send_if_modified(|current| {
                    let changed = **current != value;
                    if changed {
                        *current = Arc::new(value);
                    }
                    changed
                });
            }
            Err(error) => {
                tracing::error!(config_map = %owned, %error, "refused; the former configuration stays in force");
            }
        });
        self.subscriptions.entry(name.to_owned()).or_default().push(deliver);
        receiver
    }

    /// Hands one version of a map to its subscribers.
    pub fn deliver(&self, name: &str, data: &Data) {
        for deliver in self.subscriptions.get(name).into_iter().flatten() {
            deliver(data);
        }
    }

    /// Watches `namespace` until `shutdown`. Returns once the first full list has been delivered, or `shutdown`;
    /// the watch goes on in the background and survives an absent API server.
    pub async fn start(self, client: Client, namespace: &str, shutdown: CancellationToken) {
        let api: Api<ConfigMap> = Api::namespaced(client, namespace);
        let (synced, mut first_list) = watch::channel(false);
        let watching = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = self.watch(api, synced) => {}
                () = watching.cancelled() => {}
            }
        });
        tokio::select! {
            _ = first_list.wait_for(|done| *done) => {}
            () = shutdown.cancelled() => {}
        }
    }

    async fn watch(self, api: Api<ConfigMap>, synced: watch::Sender<bool>) {
        let mut events = watching::watch(api, watcher::Config::default());
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitApply(map) => {
                    self.deliver(&map.name_any(), map.data.as_ref().unwrap_or(&Data::new()));
                    listed.insert(map.name_any());
                }
                watcher::Event::Apply(map) => {
                    self.deliver(&map.name_any(), map.data.as_ref().unwrap_or(&Data::new()));
                }
                watcher::Event::Delete(map) => self.deliver(&map.name_any(), &Data::new()),
                watcher::Event::InitDone => {
                    for missing in self.subscriptions.keys().filter(|name| !listed.contains(*name)) {
                        self.deliver(missing, &Data::new());
                    }
                    synced.send_replace(true);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(data: &Data) -> Result<u32, String> {
        data.get("n").map_or(Ok(7), |n| n.parse().map_err(|e| format!("n={n:?}: {e}")))
    }

    #[test]
    fn a_bad_update_keeps_the_former_value_and_a_deletion_brings_the_default_back() {
        let mut maps = ConfigMaps::default();
        let value = maps.subscribe("config-x", 7, parse);
        let data = |n: &str| Data::from([("n".to_owned(), n.to_owned())]);
        maps.deliver("config-x", &data("9"));
        assert_eq!(**value.borrow(), 9);
        maps.deliver("config-x", &data("nine"));
        assert_eq!(**value.borrow(), 9, "a value that does not parse changes nothing");
        maps.deliver("config-x", &Data::new());
        assert_eq!(**value.borrow(), 7);
    }
}
