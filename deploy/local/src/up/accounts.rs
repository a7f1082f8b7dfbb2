//! Identities of the planes: ServiceAccounts with the rights in the manifests, and a Pod for each plane.
//!
//! The planes run in this process, but access the API server as in a cluster: with a token of their own account, bound
//! to a Pod of their name ([`super::pod`]). So they have the rights of the roles in `deploy/kubernetes/base`, and no
//! others. As in the manifests, each plane also has a token for the stat link.

use super::pod::PlanePod;
use super::system::NAMESPACE;
use crate::private_file;
use crate::up::manifests;
use anyhow::Context;
use common_runtime::admission::Demand;
use common_runtime::credential::TokenFile;
use common_runtime::namespaces::Namespaces;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use serde_json::json;
use std::path::{Path, PathBuf};

const ACCOUNTS: &str = include_str!("../../../kubernetes/base/accounts.yaml");
const ROLES: &str = include_str!("../../../kubernetes/base/roles.yaml");
/// NetworkPolicies of the planes. The embedded cluster enforces none, but without the activators' general policy the
/// autoscaler would bar workloads with a policy of their own.
const POLICIES: &str = include_str!("../../../kubernetes/base/policies.yaml");
/// Additional rights for the dashboard.
const LOGS: &str = include_str!("../../../kubernetes/pod-logs/roles.yaml");
/// Rights in one namespace.
const RIGHTS: &str = include_str!("../../../kubernetes/namespaced/rights/roles.yaml");

/// Audience of the tokens for the stat link.
const STATS: &str = "zeroscale.dev/stats";

/// Requested lifetime of tokens in seconds: longer than such a cluster ever runs. The API server may shorten it.
const EXPIRATION: i64 = 365 * 24 * 3600;

/// Creates or updates the accounts and their roles. If only some namespaces are watched, creates these with a Role in
/// each, and no cluster-wide role.
pub(super) async fn create(client: &Client, namespaces: &Namespaces) -> anyhow::Result<()> {
    manifests::apply(client, manifests::parse("accounts.yaml", ACCOUNTS)?).await?;
    manifests::apply(client, manifests::parse("policies.yaml", POLICIES)?).await?;
    let mut roles = manifests::parse("roles.yaml", ROLES)?;
    roles.extend(manifests::parse("roles.yaml", LOGS)?);
    if namespaces.listed().is_some() {
        roles.retain(|role| role.object.metadata.namespace.is_some());
    }
    manifests::apply(client, roles).await?;
    for name in namespaces.and(NAMESPACE).listed().into_iter().flatten() {
        manifests::make_namespace(client, name).await?;
        let mut rights = manifests::parse("roles.yaml", RIGHTS)?;
        for right in &mut rights {
            right.object.metadata.namespace = Some(name.clone());
        }
        manifests::apply(client, rights).await?;
    }
    Ok(())
}

/// Returns the requirement on the tokens of clients that send stats. `None` if autoscalers have no right to review
/// tokens.
pub(super) fn required_token(namespaces: &Namespaces) -> Option<Demand> {
    namespaces.listed().is_none().then(|| Demand::of_planes(STATS, NAMESPACE, "autoscaler"))
}

/// Returns the file with the stat-link token of plane `pod`.
pub(super) fn stat_token(folder: &Path, pod: &str) -> TokenFile {
    TokenFile::new(folder.join(format!("{pod}.token")))
}

/// Creates the Pod of plane `name`. Returns an API client with service account `account`, and the Pod. `kube` is an
/// administrator's configuration. Writes the plane's stat-link token to `folder`.
pub(super) async fn register_pod(
    kube: Config,
    folder: PathBuf,
    account: &'static str,
    name: String,
) -> anyhow::Result<(Client, PlanePod)> {
    let administrator = common_runtime::api_server::client(kube.clone(), "local")?;
    let pod =
        PlanePod::make(&administrator, account, &name).await.with_context(|| format!("cannot create Pod {name}"))?;
    let secret = token(&administrator, account, &pod, Some(STATS)).await?;
    private_file::write(&folder.join(format!("{name}.token")), &secret)?;
    let mut own = kube;
    own.auth_info = AuthInfo::default();
    own.auth_info.token = Some(token(&administrator, account, &pod, None).await?.into());
    Ok((common_runtime::api_server::client(own, account)?, pod))
}

/// Requests a token of `account` that is bound to `pod`, for `audience` or for the API server.
async fn token(client: &Client, account: &str, pod: &PlanePod, audience: Option<&str>) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let request: TokenRequest = serde_json::from_value(json!({"spec": {
        "audiences": audience.into_iter().collect::<Vec<_>>(), "expirationSeconds": EXPIRATION,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
    }}))?;
    let answered = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let status = answered.with_context(|| format!("cannot request a token of ServiceAccount {account}"))?.status;
    status.and_then(|status| status.token).context("the API server returned no token")
}
