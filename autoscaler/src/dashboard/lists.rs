//! A whole list: this process's rows, the other replicas', and of workloads that nobody has told of what their objects
//! say.

use super::own::{AT_ONCE, Own};
use super::record::time;
use super::replicas::{Replica, Replicas, name};
use super::writer::{Gone, Writer};
use common::RevisionKey;
use common_controller::shares::Owner;
use std::collections::HashSet;

/// What a list is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// One namespace; none: all.
    pub(super) namespace: Option<String>,
}

impl Scope {
    /// Whether a workload belongs to it.
    pub(super) fn has(&self, key: &RevisionKey) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace())
    }
}

/// What a list was made of.
pub(super) struct Listed {
    /// Who was asked.
    pub(super) replicas: Vec<Replica>,
    /// Whom it tells of, or would if they had anything to show.
    pub(super) keys: Vec<RevisionKey>,
}

/// Writes `"now":…,"replicas":[…],"workloads":[…]`. What has no object here is not told of, whatever others say: it has
/// just been deleted, or will be told of when it is known here.
pub(super) async fn write(own: &Own, replicas: &Replicas, scope: &Scope, writer: &mut Writer) -> Result<Listed, Gone> {
    let others = replicas.others();
    let mut answered = HashSet::new();
    let mut asked = vec![own.replica()];
    let mut theirs = Vec::new();
    for (instance, rows) in replicas.rows(others.into_iter().map(|instance| (instance, None)).collect()).await {
        let error = rows.as_ref().err().cloned();
        asked.push(Replica { name: name(&instance), answered: error.is_none(), error });
        if let Ok(rows) = rows {
            theirs.extend(rows.rows);
            answered.insert(instance);
        }
    }
    let head = serde_json::to_string(&asked).unwrap_or_default();
    writer.write(&format!("\"now\":\"{}\",\"replicas\":{head},\"workloads\":[", time(own.now().into()))).await?;
    let mut keys = own.objects.keys();
    keys.retain(|key| scope.has(key));
    let there: HashSet<&RevisionKey> = keys.iter().collect();
    theirs.retain(|(key, _)| there.contains(key));
    let told: HashSet<RevisionKey> = theirs.iter().map(|(key, _)| key.clone()).collect();
    let mut rest = keys.clone();
    // Whoever is asked about something that it has just got may not know it yet.
    let theirs_to_tell =
        |key: &RevisionKey| matches!(own.shares.owner(key), Owner::Other(owner) if answered.contains(&owner));
    rest.retain(|key| !told.contains(key) && !theirs_to_tell(key));
    let mut separator = "";
    for (_, row) in theirs {
        writer.write(separator).await?;
        writer.write(&row).await?;
        separator = ",";
    }
    for some in rest.chunks(AT_ONCE) {
        for key in some {
            let Some(row) = own.row(key, true) else { continue };
            writer.write(separator).await?;
            writer.write(&row).await?;
            separator = ",";
        }
        tokio::task::yield_now().await;
    }
    writer.write("]").await?;
    Ok(Listed { replicas: asked, keys })
}
