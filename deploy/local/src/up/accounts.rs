//! Who the planes are: ServiceAccounts with the rights that the manifests give them, and a Pod for each plane.
//!
//! Planes run in this process, yet speak to the API server as they would in a cluster: with a token of their own
//! account, bound to a Pod of their name ([`super::pod`]). So whatever works here works with the roles in
//! `deploy/kubernetes/base`, and a verb that is missing there is missing here. As the manifests have it, each plane also has
//! a token for the stat link.

use super::planes::{NAMESPACE, unless_there};
use super::pod::PlanePod;
use crate::private_file;
use crate::up::manifests;
use anyhow::Context;
use common_runtime::admission::Demand;
use common_runtime::credential::TokenFile;
use common_runtime::namespaces::Namespaces;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, Config};
use serde_json::json;
use std::path::{Path, PathBuf};

const ACCOUNTS: &str = include_str!("../../../kubernetes/base/accounts.yaml");
const ROLES: &str = include_str!("../../../kubernetes/base/roles.yaml");
/// Rights for what the dashboard shows beside.
const LOGS: &str = include_str!("../../../kubernetes/pod-logs/roles.yaml");
/// For one namespace.
const RIGHTS: &str = include_str!("../../../kubernetes/namespaced/rights/roles.yaml");

/// Audience of the tokens for the stat link.
const STATS: &str = "zeroscale.dev/stats";

/// How long tokens are good for, if the API server allows it: longer than anybody leaves such a cluster running.
const EXPIRATION: i64 = 365 * 24 * 3600;

/// Creates the accounts and their roles, or makes them what they should be. Where only some namespaces are looked at, these
/// are made, with a Role in each, and none of the roles is for the whole cluster.
pub(super) async fn create(client: &Client, namespaces: &Namespaces) -> anyhow::Result<()> {
    manifests::apply(client, manifests::parse("accounts.yaml", ACCOUNTS)?).await?;
    let mut roles = manifests::parse("roles.yaml", ROLES)?;
    roles.extend(manifests::parse("roles.yaml", LOGS)?);
    if namespaces.listed().is_some() {
        roles.retain(|role| role.object.metadata.namespace.is_some());
    }
    manifests::apply(client, roles).await?;
    for name in namespaces.and(NAMESPACE).listed().into_iter().flatten() {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        unless_there(&Api::all(client.clone()), &namespace).await.with_context(|| format!("Namespace {name}"))?;
        let mut rights = manifests::parse("roles.yaml", RIGHTS)?;
        for right in &mut rights {
            right.object.metadata.namespace = Some(name.clone());
        }
        manifests::apply(client, rights).await?;
    }
    Ok(())
}

/// What autoscalers demand of whoever sends stats: nothing where they have no right to look at a token.
pub(super) fn demand(namespaces: &Namespaces) -> Option<Demand> {
    namespaces.listed().is_none().then(|| Demand::of_planes(STATS, NAMESPACE, "autoscaler"))
}

/// Where the token of the plane `pod` for the stat link is.
pub(super) fn stat_token(folder: &Path, pod: &str) -> TokenFile {
    TokenFile::new(stat_token_path(folder, pod))
}

fn stat_token_path(folder: &Path, pod: &str) -> PathBuf {
    folder.join(format!("{pod}.token"))
}

/// The way to the API server of the plane `name`, which runs as `account`, and its Pod; `kube` is an administrator's. Its
/// token for the stat link is in `folder` afterwards.
pub(super) async fn enter(
    kube: Config,
    folder: &Path,
    account: &str,
    name: &str,
) -> anyhow::Result<(Client, PlanePod)> {
    let administrator = common_runtime::api_server::client(kube.clone(), "local")?;
    let pod = PlanePod::make(&administrator, account, name).await.with_context(|| format!("Pod {name}"))?;
    let file = stat_token_path(folder, name);
    let secret = token(&administrator, account, &pod, Some(STATS)).await?;
    private_file::write(&file, &secret)?;
    let mut own = kube;
    own.auth_info.token = Some(token(&administrator, account, &pod, None).await?.into());
    own.auth_info.client_certificate_data = None;
    own.auth_info.client_key_data = None;
    own.auth_info.client_certificate = None;
    own.auth_info.client_key = None;
    Ok((common_runtime::api_server::client(own, account)?, pod))
}

/// A token of `account` that is bound to `pod`; for the API server, or for `audience`.
async fn token(client: &Client, account: &str, pod: &PlanePod, audience: Option<&str>) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(audience.map(str::to_owned).into_iter().collect()),
            expiration_seconds: Some(EXPIRATION),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(pod.name.clone()),
                uid: Some(pod.uid.clone()),
            }),
        }),
        ..TokenRequest::default()
    };
    let answered = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let status = answered.with_context(|| format!("token of ServiceAccount {account}"))?.status;
    status.and_then(|status| status.token).context("the API server answers without a token")
}
