//! Helper of tests.

use k8s_openapi::api::core::v1::ConfigMap;

/// Returns an object in namespace `ns` with this uid and resource version.
pub(crate) fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    let mut object = ConfigMap::default();
    let [namespace, name, uid, version] = ["ns", name, uid, &version.to_string()].map(|text| Some(text.to_owned()));
    (object.metadata.namespace, object.metadata.name) = (namespace, name);
    (object.metadata.uid, object.metadata.resource_version) = (uid, version);
    object
}
