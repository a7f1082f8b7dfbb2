//! List of workloads, complete or as changes since an earlier list. It combines this process's rows with those of the
//! other replicas. The row of a workload whose owner does not respond is derived from its object.

use super::local::LocalReplica;
use super::records::time;
use super::replicas::name;
use super::table::Changes;
use common::RevisionKey;
use common_controller::shares::Owner;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) namespace: Option<String>,
    /// Position of an earlier list, to get only later changes.
    pub(super) after: Option<i64>,
}

impl Scope {
    /// Returns whether a workload belongs to the scope.
    fn contains(&self, key: &RevisionKey) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace())
    }
}

/// Returns a list as JSON. A workload whose object is unknown here is omitted, whatever other replicas report: it has
/// just been deleted, or will be listed once it is known here.
///
/// The position is a time. Unless all replicas have responded, it stays unchanged, so that the next list includes the
/// changes of replicas that respond again.
pub(super) async fn list(own: &Arc<LocalReplica>, scope: Scope) -> String {
    let position = scope.after;
    let (position, Changes { is_full, changed, mut gone }) = own.compute(move |own| own.changes(position)).await;
    let after = scope.after.filter(|_| !is_full);
    let others = own.rows_of_others(after.map(|after| (position - after).max(0))).await;
    let merge = move |own: &LocalReplica| {
        let keys = own.parts.objects.keys().into_iter();
        let objects: HashSet<RevisionKey> = keys.filter(|key| scope.contains(key)).collect();
        let mut replicas = vec![json!({"name": own.parts.me, "answered": true})];
        let is_complete = others.iter().all(|(_, answer)| answer.is_ok());
        let (mut answered, mut their_rows) = (HashSet::new(), Vec::new());
        for (instance, answer) in others {
            let name = name(&instance);
            match answer {
                Ok(rows) => {
                    replicas.push(json!({"name": name, "answered": true}));
                    their_rows.extend(rows);
                    answered.insert(instance);
                }
                Err(error) => replicas.push(json!({"name": name, "answered": false, "error": error})),
            }
        }
        let is_unreported = |key: &&RevisionKey| match own.parts.shares.owner(key) {
            Owner::Us => false,
            Owner::Other(owner) => !answered.contains(&owner),
            Owner::Nobody => true,
        };
        let names: HashSet<&str> = objects.iter().map(RevisionKey::as_str).collect();
        let mut rows: BTreeMap<_, _> = their_rows.into_iter().filter(|(key, _)| names.contains(key.as_str())).collect();
        let changed = changed.iter().filter(|key| objects.contains(*key));
        rows.extend(own.rows(changed.chain(objects.iter().filter(is_unreported)), is_full));
        gone.retain(|key| scope.contains(key));
        gone.sort_unstable();
        let position = if is_complete { Some(position) } else { after };
        json!({
            "now": time(own.records.now().into()),
            "position": position.map(|position| position.to_string()).unwrap_or_default(),
            "full": is_full,
            "replicas": replicas,
            "removed": gone.iter().map(RevisionKey::as_str).collect::<Vec<_>>(),
            "workloads": rows.into_values().collect::<Vec<_>>(),
        })
        .to_string()
    };
    own.compute(merge).await
}
