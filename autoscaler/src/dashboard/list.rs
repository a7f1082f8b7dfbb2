//! The list of workloads, complete or as changes since an earlier list. It combines this process's rows with those of
//! the other replicas; a workload without a responding owner is shown from its object.

use super::local::LocalReplica;
use super::records::time;
use super::replicas::{Replica, name};
use super::table::Changes;
use common::RevisionKey;
use common_controller::shares::Owner;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};

/// Scope of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// Namespace; none: all.
    pub(super) namespace: Option<String>,
    /// Position of an earlier list, to get only later changes.
    pub(super) after: Option<i64>,
}

impl Scope {
    /// Returns whether a workload belongs to the scope.
    fn has(&self, key: &RevisionKey) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace())
    }
}

/// Returns a list as JSON. A workload without an object here is omitted, whatever other replicas report: it has just
/// been deleted, or will be listed once it is known here.
///
/// The position is a time. Unless all replicas have responded, it stays where it was, so that the next list includes
/// the changes of those that respond again.
pub(super) async fn list(own: &LocalReplica, scope: &Scope) -> String {
    let (position, Changes { is_full, changed, gone }) = {
        let table = own.pass().await;
        (table.position(), table.since(scope.after))
    };
    let after = scope.after.filter(|_| !is_full);
    let others = own.other_replicas();
    let answers = own.rows_of(&others, after.map(|after| (position - after).max(0))).await;
    let objects: HashSet<RevisionKey> = own.parts.objects.keys().into_iter().filter(|key| scope.has(key)).collect();
    let mut listed = vec![Replica { name: own.parts.me.clone(), answered: true, error: None }];
    let mut rows = BTreeMap::new();
    let mut answered = HashSet::new();
    for (instance, answer) in others.into_iter().zip(answers) {
        let error = answer.as_ref().err().cloned();
        listed.push(Replica { name: name(&instance), answered: error.is_none(), error });
        if let Ok(theirs) = answer {
            rows.extend(theirs.into_iter().filter(|(key, _)| objects.contains(key)));
            answered.insert(instance);
        }
    }
    let position = match listed.iter().all(|replica| replica.answered) {
        true => Some(position),
        false => after,
    };
    let is_unreported = |key: &&RevisionKey| match own.parts.shares.owner(key) {
        Owner::Us => false,
        Owner::Other(owner) => !answered.contains(&owner),
        Owner::Nobody => true,
    };
    let changed = changed.iter().filter(|key| objects.contains(*key));
    rows.extend(own.rows(changed.chain(objects.iter().filter(is_unreported)), is_full).await);
    let rows: Vec<String> = rows.into_values().collect();
    let mut gone: Vec<_> = gone.iter().filter(|key| scope.has(key)).map(RevisionKey::as_str).collect();
    gone.sort_unstable();
    format!(
        "{{\"now\":\"{}\",\"position\":\"{}\",\"full\":{},\"replicas\":{},\"removed\":{},\"workloads\":[{}]}}\n",
        time(own.records.now().into()),
        position.map(|position| position.to_string()).unwrap_or_default(),
        is_full,
        json!(listed),
        json!(gone),
        rows.join(","),
    )
}
