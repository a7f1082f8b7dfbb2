//! What manifests may hold although nothing of the embedded cluster runs it.
//!
//! The embedded API server keeps these objects as any other, so an apply of them succeeds; yet no controller here makes
//! pods for them, and requests for them would wait in vain. So whoever applies them is told.

use super::manifests::Manifest;

/// Kinds whose pods nothing here makes.
const KINDS: &[(&str, &str)] = &[
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
    ("v1", "ReplicationController"),
];

/// A sentence for each object of these manifests that nothing will run.
pub(super) fn warnings(manifests: &[Manifest]) -> impl Iterator<Item = String> {
    manifests.iter().filter(|manifest| is_unrun(manifest)).map(|manifest| {
        let meta = &manifest.object.metadata;
        let name = meta.name.as_deref().or(meta.generate_name.as_deref()).unwrap_or_default();
        format!(
            "{}: {} {}/{name} will have no pods: without --external only Deployments, ReplicaSets and Pods are run",
            manifest.origin,
            manifest.types.kind,
            meta.namespace.as_deref().unwrap_or("default"),
        )
    })
}

fn is_unrun(manifest: &Manifest) -> bool {
    let types = &manifest.types;
    KINDS.contains(&(types.api_version.as_str(), types.kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::super::manifests::parse;
    use super::*;

    /// Goal: who applies what nothing runs is told, by object and rule; of what is run, nothing is said.
    #[test]
    fn what_nothing_runs_is_told_by_object_and_rule() {
        let rows = [
            ("apps/v1", "Deployment", None),
            ("apps/v1", "ReplicaSet", None),
            ("v1", "Pod", None),
            ("example.com/v1", "Job", None),
            ("apps/v1", "StatefulSet", Some("StatefulSet shop/a")),
            ("apps/v1", "DaemonSet", Some("DaemonSet shop/a")),
            ("batch/v1", "Job", Some("Job shop/a")),
            ("batch/v1", "CronJob", Some("CronJob shop/a")),
        ];
        for (version, kind, object) in rows {
            let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a, namespace: shop}}\n");
            let told: Vec<_> = warnings(&parse("f.yaml", &text).expect("manifests")).collect();
            let rule = "will have no pods: without --external only Deployments, ReplicaSets and Pods are run";
            let expected = object.map(|object| format!("f.yaml, document 1: {object} {rule}"));
            assert_eq!(told, Vec::from_iter(expected));
        }
    }
}
