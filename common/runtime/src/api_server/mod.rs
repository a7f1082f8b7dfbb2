//! The client of the API server, and one log of its faults.
//!
//! Every watch, lease and write of a process is retried when it fails, so each of them meets the same fault (no server,
//! no permission, no such resource) again and again. All requests pass through [`client`]. It logs a fault once, with
//! its remedy, and once more when it is over ([`crate::failure_log`]). Callers log an error at debug if [`is_reported`]
//! says that it is logged here.
//!
//! | fault | counts once for | logged again |
//! |---|---|---|
//! | no response, or an untrusted server; our token is unknown (401) | the process | after it was over |
//! | a permission is missing (403) | each verb and resource | likewise |
//! | a resource is not served (404 to a list or watch) | each resource | likewise |
//!
//! A server may also accept a connection and never respond. A request that was cancelled after 0.9 s or more counts as
//! unanswered. A waiting request counts as unanswered every ten seconds. It fails after 65 seconds, so that the next
//! attempt uses another connection.
//!
//! # Not here
//!
//! Other errors (409, 422, 500): they concern one object, and the caller knows more about it. 403s that do not mean a
//! missing permission, such as those of a quota.

mod connect;
mod fault_remedy;
mod report;
mod request_info;
mod retries;

use anyhow::Context;
use fault_remedy::is_missing_permission;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;

pub use fault_remedy::chain;
pub use report::client;

/// Reports whether [`client`] logs this error, so that callers need not.
pub fn is_reported(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            status.code == 401 || (status.code == 403 && is_missing_permission(&status.message))
        }
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) | kube::Error::Auth(_) => {
            true
        }
        _ => false,
    }
}

/// Returns the address of the API server and our credentials: from the file at `kubeconfig`, else from the one that
/// `KUBECONFIG` names or `~/.kube/config`, else from the Pod's own ServiceAccount. Fails if none can be used; the error
/// names the file, the problem and the remedy.
pub async fn config(kubeconfig: Option<&Path>, selected: &KubeConfigOptions) -> anyhow::Result<Config> {
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let (what, config) = match (kubeconfig, named) {
        (Some(path), _) => {
            let what = format!("--kubeconfig {}", path.display());
            let read = async { Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, selected).await };
            (what, read.await)
        }
        (None, Some(path)) => {
            let what = format!("KUBECONFIG={}", path.display());
            (what, Config::from_kubeconfig(selected).await)
        }
        (None, None) if selected.cluster.is_some() => {
            ("~/.kube/config".to_owned(), Config::from_kubeconfig(selected).await)
        }
        (None, None) => {
            return Config::infer().await.context(
                "no API server is configured: this process does not run in a Pod with a ServiceAccount token (see \
                 automountServiceAccountToken), and no kubeconfig is named; set KUBECONFIG to the path of a kubeconfig",
            );
        }
    };
    config.with_context(|| {
        format!("{what} cannot be used; it must be the path of a kubeconfig that names a cluster, a user and a context")
    })
}
