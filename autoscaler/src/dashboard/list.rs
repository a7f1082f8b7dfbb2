//! The list of workloads, complete or as changes since an earlier list. It combines this process's rows with those of
//! the other replicas; a workload without a responding owner is shown from its object.

use super::own::Own;
use super::records::time;
use super::replicas::{Replica, Replicas, Rows, name};
use common::RevisionKey;
use common_controller::shares::Owner;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Scope of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// Namespace; none: all.
    pub(super) namespace: Option<String>,
    /// Position of an earlier list, to get only later changes.
    pub(super) after: Option<String>,
}

impl Scope {
    /// Returns whether a workload belongs to the scope.
    fn has(&self, key: &RevisionKey) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace())
    }
}

/// Positions of all replicas, as a client holds them: a hash of each replica's name, and the client's position there.
/// Every replica can read them.
struct Positions<'a>(HashMap<u64, &'a str>);

impl<'a> Positions<'a> {
    /// Parses a text. Damaged parts are ignored.
    fn read(text: &'a str) -> Self {
        let part = |part: &'a str| {
            let (name, position) = part.split_once('.')?;
            Some((u64::from_str_radix(name, 16).ok()?, position))
        };
        Self(text.split(':').filter_map(part).collect())
    }

    fn of(&self, name: &str) -> Option<&'a str> {
        self.0.get(&hash(name)).copied()
    }

    /// Formats the positions of all replicas that responded.
    fn write<'n>(all: impl Iterator<Item = (&'n str, &'n str)>) -> String {
        let parts: Vec<_> = all.map(|(name, position)| format!("{:x}.{position}", hash(name))).collect();
        parts.join(":")
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Returns a list as JSON. A workload without an object here is omitted, whatever other replicas report: it has just
/// been deleted, or will be listed once it is known here.
pub(super) async fn list(own: &Own, replicas: &Replicas, scope: &Scope) -> String {
    let others = replicas.others();
    let known = Positions::read(scope.after.as_deref().unwrap_or_default());
    let me = own.shares.member().unwrap_or(&own.me);
    let names: Vec<String> = others.iter().map(name).collect();
    let theirs: Vec<_> = names.iter().map(|name| known.of(name)).collect();
    let younger = own.look(known.of(me).and_then(|position| position.parse().ok())).await;
    // A replica without rows needs no full list if the client has followed other replicas: those report deletions.
    let is_full = younger.is_full && !(younger.changed.is_empty() && theirs.iter().any(Option::is_some));
    // A client that needs everything gets everything from all replicas.
    let asked = theirs.iter().map(|position| position.filter(|_| !is_full));
    let answers = replicas.rows(others.iter().zip(asked)).await;
    let objects: HashSet<RevisionKey> = own.objects.keys().into_iter().filter(|key| scope.has(key)).collect();
    let mut told = vec![Replica { name: own.me.clone(), answered: true, error: None }];
    let position = younger.position.to_string();
    let answered =
        names.iter().zip(&answers).filter_map(|(name, rows)| Some((&**name, &*rows.as_ref().ok()?.position)));
    let position = Positions::write(answered.chain([(me, &*position)]));
    let mut rows: HashMap<RevisionKey, Arc<str>> = HashMap::new();
    let mut gone: HashSet<RevisionKey> = younger.gone.iter().cloned().collect();
    let mut answered = HashSet::new();
    for (instance, answer) in others.into_iter().zip(answers) {
        let (error, answer) = (answer.as_ref().err().cloned(), answer.ok());
        told.push(Replica { name: name(&instance), answered: error.is_none(), error });
        if let Some(Rows { rows: theirs, gone: they_lost, .. }) = answer {
            gone.extend(they_lost.into_iter().filter(|key| !objects.contains(key)));
            rows.extend(theirs.into_iter().filter(|(key, _)| objects.contains(key)));
            answered.insert(instance);
        }
    }
    let is_untold = |key: &&RevisionKey| match own.shares.owner(key) {
        Owner::Us => false,
        Owner::Other(owner) => !answered.contains(&owner),
        Owner::Nobody => true,
    };
    let changed = younger.changed.iter().filter(|key| objects.contains(*key));
    own.rows(changed.chain(objects.iter().filter(is_untold)), is_full, &mut rows).await;
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let rows: Vec<&str> = rows.iter().map(|(_, row)| &**row).collect();
    let mut gone: Vec<_> = gone.iter().filter(|key| scope.has(key)).map(RevisionKey::as_str).collect();
    gone.sort_unstable();
    format!(
        "{{\"now\":\"{}\",\"position\":\"{position}\",\"full\":{},\"replicas\":{},\"removed\":{},\"workloads\":[{}]}}\n",
        time(own.records.now().into()),
        is_full,
        json!(told),
        json!(gone),
        rows.join(","),
    )
}
