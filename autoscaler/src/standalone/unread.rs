//! Namespaces of which this process may not know all ZeroScalers.
//!
//! Where several namespaces are watched (`ZEROSCALE_NAMESPACES`), one whose rights are missing counts as listed, and empty
//! ([`common_runtime::watching`]): a process that starts meanwhile knows none of its ZeroScalers, and learns of them some
//! seconds after the rights are back. So before something is taken away from a ZeroScaler that is not known, the API
//! server is asked whether there is none.
//!
//! A question is one list of the metadata in a namespace, or of the one name if only one is missing. It is asked when
//! something is about to be taken away: once for each ZeroScaler that has ended, which has nothing after that. A namespace
//! that may not be read, or that has the ZeroScaler, is left as it is for [`AGAIN`], and then asked about again.
//!
//! # Odd cases
//!
//! - A namespace that is not among those that are looked at is not asked about: its ZeroScalers are nobody's here.
//! - A namespace that was deleted with the Role in it looks like one whose rights are missing: what its ZeroScalers had
//!   stays theirs until it is taken out of `ZEROSCALE_NAMESPACES`.

use crate::reconcile::error::Error;
use common::RevisionKey as Key;
use common_api::ZeroScaler;
use common_controller::{WriteError, code};
use common_runtime::namespaces::Namespaces;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use tokio::time::Instant;

/// Time between two questions about a namespace in which nothing may be taken away.
pub(crate) const AGAIN: Duration = Duration::from_secs(60);

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
        let (mut unread, mut outcome) = (BTreeSet::new(), Ok(()));
        for (namespace, missing) in by_namespace {
            let is_unread = match self.is_left_alone(namespace) {
                true => Ok(true),
                false => self.ask(namespace, &missing).await,
            };
            if !matches!(is_unread, Ok(false)) {
                unread.insert(namespace.to_owned());
            }
            outcome = outcome.and(is_unread.map(|_| ()));
        }
        (unread, outcome)
    }

    fn is_looked_at(&self, namespace: &str) -> bool {
        self.namespaces.listed().is_some_and(|names| names.contains(namespace))
    }

    fn is_left_alone(&self, namespace: &str) -> bool {
        self.until.lock().get(namespace).is_some_and(|until| Instant::now() < *until)
    }

    /// Whether one of these, by name and uid, is there, or nobody may say.
    async fn ask(&self, namespace: &str, missing: &BTreeMap<&str, &str>) -> Result<bool, Error> {
        let params = match missing.first_key_value() {
            Some((name, _)) if missing.len() == 1 => ListParams::default().fields(&format!("metadata.name={name}")),
            _ => ListParams::default(),
        };
        let scalers = Api::<ZeroScaler>::namespaced(self.client.clone(), namespace);
        let is_unread = match scalers.list_metadata(&params).await {
            Ok(list) => list.items.iter().any(|found| {
                let (name, uid) = (found.metadata.name.as_deref(), found.metadata.uid.as_deref());
                name.and_then(|name| missing.get(name)).is_some_and(|missing| uid == Some(*missing))
            }),
            Err(error) if code(&error) == Some(403) => true,
            Err(error) => {
                let failed = WriteError::api(format!("failed to list ZeroScalers of {namespace}"));
                return Err(failed(error).into());
            }
        };
        let mut until = self.until.lock();
        match is_unread {
            true => until.insert(namespace.to_owned(), Instant::now() + AGAIN),
            false => until.remove(namespace),
        };
        Ok(is_unread)
    }
}
