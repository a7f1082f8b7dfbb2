//! A list of workloads, whole or what has changed since an earlier one: this process's rows, those of the other replicas,
//! and of workloads that no replica tells of what their objects say.

use super::own::Own;
use super::records::time;
use super::replicas::{Replica, Replicas, Rows, name};
use super::table::Position;
use common::RevisionKey;
use common_controller::shares::{Instance, Owner};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What a list is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// One namespace; none: all.
    pub(super) namespace: Option<String>,
    /// Position of an earlier list: only what has changed since then.
    pub(super) after: Option<String>,
}

impl Scope {
    /// Returns whether a workload belongs to it.
    fn has(&self, key: &RevisionKey) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace())
    }
}

/// Positions of all replicas, as a client holds them: a hash of who they are, this replica's, then each other's in order.
struct Positions<'a> {
    own: Option<Position>,
    others: Vec<Option<&'a str>>,
}

const UNANSWERED: &str = "-";

impl<'a> Positions<'a> {
    /// Reads a text for these replicas. One of other replicas, or a damaged one, knows nothing.
    fn read(text: Option<&'a str>, others: &[Instance]) -> Self {
        let read = || {
            let mut parts = text?.split(':');
            let is_same = parts.next()? == hash(others);
            let own = parts.next()?.parse().ok().filter(|_| is_same)?;
            let theirs: Vec<_> = parts.map(|part| (part != UNANSWERED).then_some(part)).collect();
            (theirs.len() == others.len()).then_some(Self { own: Some(own), others: theirs })
        };
        read().unwrap_or_else(|| Self { own: None, others: vec![None; others.len()] })
    }
}

fn hash(others: &[Instance]) -> String {
    let mut hasher = DefaultHasher::new();
    others.iter().for_each(|instance| name(instance).hash(&mut hasher));
    format!("{:x}", hasher.finish())
}

/// Returns a list as JSON. What has no object here is not told of, whatever other replicas say: it has just been deleted,
/// or will be told of when it is known here.
pub(super) async fn list(own: &Own, replicas: &Replicas, scope: &Scope) -> String {
    let others = replicas.others();
    let known = Positions::read(scope.after.as_deref(), &others);
    let asked = others.iter().zip(&known.others).map(|(instance, after)| {
        // A client that is to get everything gets everything of all.
        (instance, after.filter(|_| known.own.is_some()))
    });
    let (younger, answers) = tokio::join!(own.look(known.own), replicas.rows(asked));
    let objects: HashSet<RevisionKey> = own.objects.keys().into_iter().filter(|key| scope.has(key)).collect();
    let mut told = vec![Replica { name: own.me.clone(), answered: true, error: None }];
    let mut position = format!("{}:{}", hash(&others), younger.position);
    let mut rows: HashMap<RevisionKey, Arc<str>> = HashMap::new();
    let mut answered = HashSet::new();
    for (instance, answer) in others.into_iter().zip(answers) {
        let (error, answer) = (answer.as_ref().err().cloned(), answer.ok());
        told.push(Replica { name: name(&instance), answered: error.is_none(), error });
        position.push(':');
        position.push_str(answer.as_ref().map_or(UNANSWERED, |answer| answer.position.as_str()));
        if let Some(Rows { rows: theirs, .. }) = answer {
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
    own.rows(changed.chain(objects.iter().filter(is_untold)), younger.is_full, &mut rows).await;
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let rows: Vec<&str> = rows.iter().map(|(_, row)| &**row).collect();
    let gone: Vec<_> = younger.gone.iter().filter(|key| scope.has(key)).map(RevisionKey::as_str).collect();
    format!(
        "{{\"now\":\"{}\",\"position\":\"{position}\",\"full\":{},\"replicas\":{},\"removed\":{},\"workloads\":[{}]}}\n",
        time(own.records.now().into()),
        younger.is_full,
        json!(told),
        json!(gone),
        rows.join(","),
    )
}
