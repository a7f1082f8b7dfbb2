//! Objects without effect: the embedded API server stores them, but nothing acts on them.
//!
//! Creating these objects succeeds, but no controller here creates pods for them, and the ingress does not read
//! Ingresses. Requests would be held in vain or get a 404. So users get a warning with the text of the API's
//! `kinds.yaml`: in the log of `local up` for objects in its manifests, and in the responses of the API.

use super::manifests::Manifest;
use crate::api::create_warning;

/// Returns a warning for each object in the manifests without effect.
pub(super) fn warnings(manifests: &[Manifest]) -> impl Iterator<Item = String> {
    manifests.iter().filter_map(|Manifest { origin, types, object }| {
        let meta = &object.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or("default");
        let name = meta.name.as_deref().or(meta.generate_name.as_deref()).unwrap_or_default();
        let rule = create_warning(&types.api_version, &types.kind)?;
        Some(format!("{origin}: {} {namespace}/{name} {rule}", types.kind))
    })
}

#[cfg(test)]
mod tests {
    use super::super::manifests::parse;
    use super::*;

    /// Goal: objects without effect get a warning with their name and the rule. Other objects get none.
    #[test]
    fn an_object_without_effect_gets_a_warning_with_name_and_rule() {
        let rows = [
            ("apps/v1", "Deployment", None),
            ("apps/v1", "ReplicaSet", None),
            ("v1", "Pod", None),
            ("v1", "Service", None),
            ("example.com/v1", "Job", None),
            ("example.com/v1", "Ingress", None),
            ("apps/v1", "StatefulSet", Some("StatefulSet shop/a will have no pods")),
            ("apps/v1", "DaemonSet", Some("DaemonSet shop/a will have no pods")),
            ("batch/v1", "Job", Some("Job shop/a will have no pods")),
            ("batch/v1", "CronJob", Some("CronJob shop/a will have no pods")),
            ("v1", "ReplicationController", Some("ReplicationController shop/a will have no pods")),
            ("networking.k8s.io/v1", "Ingress", Some("Ingress shop/a has no effect, as nothing here reads it")),
        ];
        for (version, kind, expected) in rows {
            let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a, namespace: shop}}\n");
            let warned: Vec<_> = warnings(&parse("f.yaml", &text).expect("manifests")).collect();
            let beginnings: Vec<_> =
                warned.iter().filter_map(|warned| warned.split(": without --external ").next()).collect();
            let expected = expected.map(|expected| format!("f.yaml, document 1: {expected}"));
            assert_eq!(beginnings, Vec::from_iter(expected));
        }
    }
}
