//! Tokens of ServiceAccounts, and kubeconfigs that use them.

use anyhow::Context;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

/// Requests a token of an account for these audiences (none: the API server's), bound to a Pod if one is given.
pub async fn token(
    client: &Client,
    (namespace, account): (&str, &str),
    audiences: &[&str],
    pod: Option<&str>,
) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let bound = pod.map(|pod| json!({"apiVersion": "v1", "kind": "Pod", "name": pod}));
    let request: TokenRequest =
        serde_json::from_value(json!({"spec": {"audiences": audiences, "boundObjectRef": bound}}))?;
    let created = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    created.status.and_then(|status| status.token).context("a token")
}

/// Returns a kubeconfig whose users have only this token.
pub fn with_token(kubeconfig: &str, token: &str) -> anyhow::Result<String> {
    let mut file: Value = serde_yaml_ng::from_str(kubeconfig)?;
    for user in file["users"].as_array_mut().into_iter().flatten() {
        user["user"] = json!({"token": token});
    }
    Ok(file.to_string())
}
