//! Default ZeroScalers for manifests that have none.
//!
//! A user who starts `local up` with an ordinary Deployment and its Service wants to see it sleep and wake without
//! knowing ZeroScalers. So if the files contain neither a ZeroScaler nor the label `zeroscale.dev/enabled`, each
//! Deployment behind one of their Services gets a ZeroScaler with defaults. With `--external`, each such StatefulSet
//! gets one too; the embedded controllers do not run StatefulSets, so requests would be held in vain. A workload
//! without a Service, such as a queue worker, would never be woken, so it gets none.

use super::manifests::Manifest;
use common::{RevisionKey, labels};
use common_api::zeroscaler::{ServiceChoice, Target};
use common_api::{ZeroScaler, ZeroScalerSpec};
use k8s_openapi::api::core::v1::ServiceSpec;
use std::collections::BTreeMap;

/// Label that requests or refuses a ZeroScaler for a workload.
const ENABLED: &str = "zeroscale.dev/enabled";

/// Returns the ZeroScalers for the workloads in these manifests. Empty if the manifests contain any ZeroScaler or
/// label. `is_embedded` is true if API server and controllers are embedded.
pub(super) fn scalers(manifests: &[Manifest], is_embedded: bool) -> Vec<ZeroScaler> {
    let labelled = |manifest: &&Manifest| {
        let labels = manifest.object.metadata.labels.as_ref();
        manifest.types.kind == "ZeroScaler" || labels.is_some_and(|labels| labels.contains_key(ENABLED))
    };
    if manifests.iter().any(|manifest| labelled(&manifest)) {
        return Vec::new();
    }
    let workloads: Vec<_> = manifests.iter().filter_map(Labelled::workload).collect();
    let services: Vec<_> = manifests.iter().filter_map(Labelled::service).collect();
    let mut scalers = Vec::new();
    for workload in workloads.iter().filter(|workload| workload.kind == "Deployment" || !is_embedded) {
        // A Service with several workloads belongs to none of them.
        let own = |service: &&Labelled| {
            service.selects(workload) && workloads.iter().filter(|other| service.selects(other)).count() == 1
        };
        let mut own: Vec<_> = services.iter().filter(own).collect();
        own.sort_by_key(|service| (service.key.name() != workload.key.name(), service.key.name()));
        if own.is_empty() {
            continue;
        }
        // By default, a ZeroScaler takes all Services of its workload.
        let is_shared = services.iter().filter(|service| service.selects(workload)).count() > own.len();
        let named = own.iter().filter(|_| is_shared).map(|service| service.key.name());
        scalers.push(workload.scaler(named));
    }
    scalers
}

/// A Deployment or StatefulSet with the labels of its pods, or a Service with its selector.
struct Labelled {
    key: RevisionKey,
    kind: String,
    labels: BTreeMap<String, String>,
}

impl Labelled {
    fn new(manifest: &Manifest, labels: BTreeMap<String, String>) -> Option<Self> {
        let meta = &manifest.object.metadata;
        let key = RevisionKey::new(meta.namespace.as_deref().unwrap_or("default"), meta.name.as_deref()?);
        Some(Self { key, kind: manifest.types.kind.clone(), labels })
    }

    fn workload(manifest: &Manifest) -> Option<Self> {
        let known = manifest.types.api_version == "apps/v1"
            && ["Deployment", "StatefulSet"].contains(&manifest.types.kind.as_str());
        let labels = manifest.object.data.pointer("/spec/template/metadata/labels").cloned().unwrap_or_default();
        Self::new(manifest, serde_json::from_value(labels).ok().filter(|_| known)?)
    }

    /// Reads a Service with a selector and a ClusterIP.
    fn service(manifest: &Manifest) -> Option<Self> {
        let spec = manifest.object.data.get("spec").filter(|_| manifest.types.kind == "Service").cloned()?;
        let spec: ServiceSpec = serde_json::from_value(spec).ok()?; // The API server rejects an invalid spec.
        let has_address = spec.cluster_ip.as_deref() != Some("None") && spec.type_.as_deref() != Some("ExternalName");
        Self::new(manifest, spec.selector.filter(|selector| has_address && !selector.is_empty())?)
    }

    /// Reports whether this Service selects the pods of `workload`.
    fn selects(&self, workload: &Self) -> bool {
        self.key.namespace() == workload.key.namespace() && labels::have_all(&workload.labels, &self.labels)
    }

    fn scaler<'a>(&self, services: impl Iterator<Item = &'a str>) -> ZeroScaler {
        let service = |name: &str| ServiceChoice { name: name.to_owned(), create: false };
        let mut scaler = ZeroScaler::new(
            self.key.name(),
            ZeroScalerSpec {
                target: Target { kind: self.kind.clone(), ..Target::deployment(self.key.name()) },
                services: services.map(service).collect(),
                ..ZeroScalerSpec::default()
            },
        );
        scaler.metadata.namespace = Some(self.key.namespace().to_owned());
        scaler
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifests::parse;
    use super::*;
    use kube::ResourceExt;

    fn workload(kind: &str, name: &str, labels: &str, own: &str) -> String {
        format!(
            "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}, labels: {{{own}}}}}\nspec:\n  \
             template: {{metadata: {{labels: {{{labels}}}}}}}\n---\n"
        )
    }

    fn service(name: &str, spec: &str) -> String {
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n---\n")
    }

    /// Returns the ZeroScalers as `KIND NAME`, each followed by the Services that it names.
    fn made(text: &str, is_embedded: bool) -> Vec<String> {
        let scalers = scalers(&parse("f.yaml", text).expect("manifests"), is_embedded).into_iter();
        let display = |scaler: ZeroScaler| {
            let named = scaler.spec.services.iter().map(|service| format!(" {}", service.name));
            format!("{} {}{}", scaler.spec.target.kind, scaler.name_any(), named.collect::<String>())
        };
        scalers.map(display).collect()
    }

    #[test]
    fn each_workload_behind_a_service_gets_a_zero_scaler() {
        let text = [
            workload("Deployment", "web", "app: web, tier: front", ""),
            workload("StatefulSet", "db", "app: db", ""),
            workload("Deployment", "worker", "app: worker", ""),
            service("shop", "selector: {app: web}"),
            service("db-headless", "selector: {app: db}, clusterIP: None"),
            service("a-db", "selector: {app: db}"),
            service("db", "selector: {app: db}"),
            service("elsewhere", "type: ExternalName, externalName: example.com"),
        ];
        assert_eq!(made(&text.concat(), false), ["Deployment web", "StatefulSet db"]);
        assert_eq!(made(&text.concat(), true), ["Deployment web"], "no embedded controller runs StatefulSets");
    }

    #[test]
    fn a_service_with_two_workloads_counts_for_neither() {
        let two = workload("Deployment", "a", "app: x", "") + &workload("Deployment", "b", "app: x", "");
        assert_eq!(made(&(two.clone() + &service("both", "selector: {app: x}")), false), [""; 0]);
        let own = workload("Deployment", "c", "app: x, tier: c", "") + &service("own", "selector: {tier: c}");
        let both = two.clone() + &own + &service("both", "selector: {app: x}");
        assert_eq!(made(&both, false), ["Deployment c own"], "its own Service is named, since another selects it too");
        let other = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: b}\nspec: {selector: {app: x}}\n";
        assert_eq!(made(&(workload("Deployment", "a", "app: x", "") + other), false), [""; 0], "another namespace");
    }

    #[test]
    fn manifests_with_a_label_or_a_zero_scaler_get_no_default() {
        let plain = workload("Deployment", "a", "app: a", "") + &service("a", "selector: {app: a}");
        assert_eq!(made(&plain, false), ["Deployment a"]);
        for word in ["'true'", "'false'"] {
            let own = format!("zeroscale.dev/enabled: {word}");
            assert_eq!(made(&(plain.clone() + &workload("Deployment", "b", "app: b", &own)), false), [""; 0], "{word}");
        }
        let object = "apiVersion: zeroscale.dev/v1alpha1\nkind: ZeroScaler\nmetadata: {name: a}\n\
                      spec: {target: {name: a}}\n";
        assert_eq!(made(&(plain + object), false), [""; 0]);
    }
}
