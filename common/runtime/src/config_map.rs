//! Live configuration: parsed ConfigMaps, as values that always hold the last valid version.
//!
//! One watch on the system namespace feeds all subscriptions. An update that does not parse is rejected with its key
//! and value. The former configuration stays in force, or the default if there is none. A map that is missing at the
//! start means defaults. Upstream refuses to start then, but no user depends on that, and a standalone installation
//! should work without maps. A map that is deleted later means defaults again, unless the process keeps the former
//! values, as upstream does ([`ConfigMaps::keep_deleted`]): there a map may be deleted briefly and created again.
//!
//! [`Refusals`] holds the maps that are currently rejected. A rejected map is logged once, shown as a metric, and
//! prevents the start of a process that must not run on former values. If all keys of a map are known
//! ([`ConfigMaps::expect`]), an unknown key is logged once, with the key that was probably meant.

use crate::telemetry::{Metrics, catalog};
use crate::watching;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// State of the first list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// No response yet.
    Unknown,
    /// The permission for it is missing.
    Denied,
    /// The list was delivered.
    Listed,
}

type Data = BTreeMap<String, String>;
type Deliver = Box<dyn Fn(&Data) -> Result<(), String> + Send + Sync>;

/// Maximum number of letters that may be wrong, missing, extra or swapped in a mistyped key.
const TYPO_MAX: usize = 4;

/// Subscriptions to the ConfigMaps of one namespace.
#[derive(Default)]
pub struct ConfigMaps {
    subscriptions: BTreeMap<String, Vec<Deliver>>,
    refusals: Refusals,
    keeps_deleted: bool,
}

/// Maps whose current version is rejected. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    gauges: Family<MapLabel, Gauge>,
    errors: Arc<Mutex<BTreeMap<String, String>>>,
}

type MapLabel = [(&'static str, String); 1];

impl Refusals {
    /// Registers `zeroscale_config_refused`: 1 for each rejected map, 0 for maps in force.
    pub fn register(&self, metrics: &Metrics) {
        metrics.register(catalog::CONFIG_REFUSED, self.gauges.clone());
    }

    /// Succeeds if every map is in force. The error names the first rejected map with key, value and rule.
    pub fn ensure_none(&self) -> anyhow::Result<()> {
        match self.errors.lock().first_key_value() {
            Some((config_map, error)) => anyhow::bail!("ConfigMap {config_map}: {error}"),
            None => Ok(()),
        }
    }

    /// Forgets a map that does not exist and so has no version to reject.
    fn forget(&self, name: &str) {
        if self.errors.lock().remove(name).is_some() {
            self.gauges.get_or_create_owned(&[("config_map", name.to_owned())]).set(0);
        }
    }

    fn record(&self, name: &str, outcome: Result<(), String>) {
        self.gauges.get_or_create_owned(&[("config_map", name.to_owned())]).set(i64::from(outcome.is_err()));
        let mut errors = self.errors.lock();
        match outcome {
            Ok(()) if errors.remove(name).is_some() => {
                tracing::info!(config_map = name, "the ConfigMap is valid again and in force")
            }
            Ok(()) => {}
            // A repeated list contains the same version.
            Err(error) if errors.get(name) == Some(&error) => {}
            Err(error) => {
                tracing::error!(
                    config_map = name,
                    error,
                    remedy = "correct the value (kubectl edit); the change takes effect at once",
                    "the ConfigMap is rejected; its previous values, or the defaults, are in force"
                );
                errors.insert(name.to_owned(), error);
            }
        }
    }
}

impl ConfigMaps {
    /// Sets whether the values of a map that is deleted after the first list stay in force until the map exists again.
    pub fn keep_deleted(&mut self, keeps: bool) {
        self.keeps_deleted = keeps;
    }

    /// Subscribes to `name`. The value is `default` until the map is read, and again when it is deleted, unless values
    /// are kept ([`Self::keep_deleted`]).
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
        let deliver: Deliver = Box::new(move |data| {
            let value = parse(data).map_err(|error| error.to_string())?;
            if **sender.borrow() != value {
                sender.send_replace(Arc::new(value));
            }
            Ok(())
        });
        self.subscriptions.entry(name.to_owned()).or_default().push(deliver);
        receiver
    }

    /// Returns the rejected maps.
    pub fn refusals(&self) -> Refusals {
        self.refusals.clone()
    }

    /// Logs keys of `name` other than `known` from now on, because they have no effect.
    pub fn expect(&mut self, name: &str, known: &'static [&'static str]) {
        let (owned, logged) = (name.to_owned(), Mutex::new(BTreeSet::new()));
        let deliver: Deliver = Box::new(move |data| {
            let unknown = data.keys().filter(|key| !key.starts_with('_') && !known.contains(&key.as_str()));
            let unknown: BTreeSet<String> = unknown.cloned().collect();
            let mut logged = logged.lock();
            for key in unknown.difference(&logged) {
                let remedy = match nearest_key(key, known) {
                    Some(nearest) => format!("write {nearest} if that is the intended key"),
                    None => format!("remove the key; the keys of this ConfigMap are: {}", known.join(", ")),
                };
                tracing::warn!(config_map = %owned, key, remedy, "the ConfigMap has an unknown key, which has no effect");
            }
            *logged = unknown;
            Ok(())
        });
        self.subscriptions.entry(name.to_owned()).or_default().push(deliver);
    }

    /// Delivers one version of a map to its subscribers.
    pub fn deliver(&self, name: &str, data: &Data) {
        let Some(subscribers) = self.subscriptions.get(name) else { return };
        let mut outcome = Ok(());
        for deliver in subscribers {
            outcome = deliver(data).and(outcome);
        }
        self.refusals.record(name, outcome);
    }

    /// Handles a map that does not exist, and never has if `is_first` is set.
    fn absent(&self, name: &str, is_first: bool) {
        if self.keeps_deleted && !is_first { self.refusals.forget(name) } else { self.deliver(name, &Data::new()) }
    }

    /// Watches `namespace` until `shutdown`. Returns once the first full list has been delivered, or on `shutdown`. The
    /// watch continues in the background and survives an unavailable API server.
    pub async fn start(self, client: Client, namespace: &str, shutdown: CancellationToken) {
        self.start_if_allowed(client, namespace, Duration::MAX, shutdown).await;
    }

    /// Does the same as [`Self::start`] for a process that can run without its maps. It also returns if the permission
    /// to list the maps was missing for all of `patience`. It waits for an API server that is unavailable or
    /// overloaded. Returns true if the maps were read.
    pub async fn start_if_allowed(
        self,
        client: Client,
        namespace: &str,
        patience: Duration,
        shutdown: CancellationToken,
    ) -> bool {
        let api: Api<ConfigMap> = Api::namespaced(client, namespace);
        let (sender, mut first) = watch::channel(First::Unknown);
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(self.watch(api, sender)));
        let outcome = async {
            // The sender lives until `shutdown`.
            while let Ok(First::Denied) = first.wait_for(|first| *first != First::Unknown).await.map(|first| *first) {
                if timeout(patience, first.wait_for(|first| *first != First::Denied)).await.is_err() {
                    return false;
                }
            }
            true
        };
        shutdown.run_until_cancelled(outcome).await.unwrap_or(true)
    }

    async fn watch(self, api: Api<ConfigMap>, first: watch::Sender<First>) {
        let mut events = watching::attempts(api, watcher::Config::default());
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    let now = if watching::is_denied(&error) { First::Denied } else { First::Unknown };
                    first.send_if_modified(|first| *first != First::Listed && std::mem::replace(first, now) != now);
                    continue;
                }
            };
            match event {
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitApply(map) | watcher::Event::Apply(map) => {
                    self.deliver(&map.name_any(), map.data.as_ref().unwrap_or(&Data::new()));
                    listed.insert(map.name_any());
                }
                watcher::Event::Delete(map) => self.absent(&map.name_any(), false),
                watcher::Event::InitDone => {
                    let is_first = *first.borrow() != First::Listed;
                    let missing = self.subscriptions.keys().filter(|name| !listed.contains(*name));
                    missing.for_each(|name| self.absent(name, is_first));
                    first.send_replace(First::Listed);
                }
            }
        }
    }
}

/// Returns the known key that is nearest to a mistyped one, if any is near enough.
fn nearest_key(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let distance = |known: &&str| strsim::osa_distance(key, known);
    let nearest = known.iter().copied().min_by_key(distance)?;
    (distance(&nearest) <= TYPO_MAX).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{failure, mock_api};
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::Instant;

    fn parse(data: &Data) -> Result<u32, String> {
        data.get("n").map_or(Ok(7), |n| n.parse().map_err(|e| format!("n={n:?}: {e}")))
    }

    /// Goal: a map that is deleted and created again changes nothing meanwhile if values are kept, and means defaults
    /// otherwise. Method: a watch that lists the map, reports its deletion, and lists no map after its history was
    /// lost.
    #[tokio::test(start_paused = true)]
    async fn a_deleted_map_stays_in_force_only_if_values_are_kept() {
        for (keeps, expected) in [(true, 9), (false, 7)] {
            for by_list in [true, false] {
                let mut maps = ConfigMaps::default();
                maps.keep_deleted(keeps);
                let mut value = maps.subscribe("config-x", 7, parse);
                let absent = maps.subscribe("config-y", 7, parse);
                let shutdown = CancellationToken::new().drop_guard();
                maps.start(deleting_server(by_list), "ns", shutdown.token().clone()).await;
                let changed = timeout(Duration::from_secs(600), value.wait_for(|value| **value != 9)).await.is_ok();
                assert_eq!(changed, !keeps, "by a list: {by_list}");
                assert_eq!((**value.borrow(), **absent.borrow()), (expected, 7), "by a list: {by_list}");
            }
        }
    }

    /// Returns a client of an API server that has one map with n=9. It reports the deletion by a watch event, or by a
    /// list after a watch that fails as too old. Later watches get no response.
    fn deleting_server(by_list: bool) -> Client {
        let (lists, watches) = (AtomicUsize::new(0), AtomicUsize::new(0));
        mock_api(move |request| {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": "9"},
                             "metadata": {"name": "config-x", "namespace": "ns", "resourceVersion": "2"}});
            if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                let event = match by_list {
                    true => json!({"type": "ERROR", "object": failure(410).expect("a Status").1}),
                    false => json!({"type": "DELETED", "object": map}),
                };
                return (watches.fetch_add(1, Ordering::Relaxed) == 0).then_some((200, event));
            }
            let is_first = lists.fetch_add(1, Ordering::Relaxed) == 0;
            let items = if is_first { vec![map] } else { Vec::new() };
            let metadata = json!({"resourceVersion": "2"});
            Some((200, json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items})))
        })
    }

    #[test]
    fn the_nearest_known_key_is_suggested_for_a_mistyped_one() {
        const KNOWN: &[&str] = &["scale-to-zero-grace-period", "stable-window", "min-scale", "max-scale"];
        let rows = [
            ("scale-to-zero-grace-perid", Some("scale-to-zero-grace-period")),
            ("stable_window", Some("stable-window")),
            ("minscale", Some("min-scale")),
            ("something-else", None),
        ];
        for (key, expected) in rows {
            assert_eq!(nearest_key(key, KNOWN), expected, "{key}");
        }
    }

    /// Goal: a rejected map changes no value. It is reported by name, error and metric while it is rejected, even if
    /// only one subscriber rejects it. A deletion restores the default.
    #[test]
    fn a_rejected_map_changes_no_value_and_is_reported() {
        let mut maps = ConfigMaps::default();
        let [value, _other] =
            [maps.subscribe("config-x", 7, parse), maps.subscribe("config-x", 7, |_: &Data| Ok::<_, String>(7))];
        let (metrics, refusals) = (Metrics::default(), maps.refusals());
        refusals.register(&metrics);
        let data = |n: &str| Data::from([("n".to_owned(), n.to_owned())]);
        for (data, expected, refused) in
            [(data("9"), 9, 0), (data("nine"), 9, 1), (data("10"), 10, 0), (Data::new(), 7, 0)]
        {
            maps.deliver("config-x", &data);
            assert_eq!(**value.borrow(), expected);
            let text = metrics.encode().expect("text");
            assert!(text.contains(&format!("zeroscale_config_refused{{config_map=\"config-x\"}} {refused}")), "{text}");
            let error = refusals.ensure_none().err().map(|error| error.to_string());
            let expected = "ConfigMap config-x: n=\"nine\": invalid digit found in string";
            assert_eq!(error.as_deref(), (refused == 1).then_some(expected));
        }
    }

    /// Goal: a process that can run without its maps waits for an overloaded API server as long as necessary, and for a
    /// permission that is granted in time. A permission that stays missing does not block it.
    #[tokio::test(start_paused = true)]
    async fn the_start_gives_up_only_on_a_permission_that_stays_missing() {
        const PATIENCE: Duration = Duration::from_secs(5);
        type Code = fn(usize) -> u16;
        let rows: [(Code, bool); 3] = [
            (|attempt| if attempt < 20 { 503 } else { 200 }, true),
            (|attempt| if attempt < 2 { 403 } else { 200 }, true),
            (|_| 403, false),
        ];
        for (number, (code, expected)) in rows.into_iter().enumerate() {
            let (begin, shutdown) = (Instant::now(), CancellationToken::new().drop_guard());
            let until = shutdown.token().clone();
            let requests = AtomicUsize::new(0);
            let client = mock_api(move |_| match code(requests.fetch_add(1, Ordering::Relaxed)) {
                200 => {
                    let metadata = json!({"resourceVersion": "1"});
                    Some((200, json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": []})))
                }
                code => failure(code),
            });
            let is_read = ConfigMaps::default().start_if_allowed(client, "ns", PATIENCE, until).await;
            assert_eq!(is_read, expected, "row {number}");
            match number {
                0 => assert!(begin.elapsed() > 3 * PATIENCE, "{:?}", begin.elapsed()),
                2 => assert!((PATIENCE..2 * PATIENCE).contains(&begin.elapsed()), "{:?}", begin.elapsed()),
                _ => {}
            }
        }
    }
}
