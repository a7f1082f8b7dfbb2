//! Namespace of the planes, and creation of their objects.

use kube::Api;
use kube::api::PostParams;

/// Namespace of the control plane.
pub const NAMESPACE: &str = "zeroscale-system";

/// Creates an object unless its name exists, which is common on an external API server.
pub(super) async fn create_if_missing<K>(api: &Api<K>, object: &K) -> kube::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(|_| ()),
    }
}
