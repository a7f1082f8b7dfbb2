//! The client of the API server, and one log of what is wrong with it.
//!
//! Whoever asks the API server for something tries again when it fails, so one fault (no server, no right, no such
//! resource) is met by every watch, lease and write of a process, again and again. All of their requests pass through
//! [`client`], which logs a fault once, with what would mend it, and once more when it is over
//! ([`crate::failure_log`]). Whoever met it logs it at debug, if [`is_reported`] says that it is logged here.
//!
//! | fault | is one | logged again |
//! |---|---|---|
//! | nobody answers, or nobody to be trusted; our token is not known (401) | for the process | after it was over |
//! | a right is missing (403) | for each verb and resource | likewise |
//! | a resource is not served (404 to a list or watch) | for each resource | likewise |
//!
//! A connection may also be taken and nothing ever said. A request that was given up after a second or more counts as
//! unanswered. One that waits counts as unanswered every ten seconds, and ends with an error after 65 seconds, so that
//! its next attempt gets another connection.
//!
//! # Not here
//!
//! Other refusals (409, 422, 500): they are about one object, and whoever wrote it knows more of it. 403s that are no
//! missing right, such as a quota's.

mod connect;
mod remedy;
mod report;
mod request_info;
mod retries;

use anyhow::Context;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use remedy::missing_right;
use std::path::Path;

pub use remedy::chain;
pub use report::client;

/// Whether [`client`] logs this error, so that whoever met it need not.
pub fn is_reported(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 401 || (status.code == 403 && missing_right(&status.message)),
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) | kube::Error::Auth(_) => {
            true
        }
        _ => false,
    }
}

/// Where the API server is, and who we are there: from the file at `kubeconfig`, else the one that `KUBECONFIG` names
/// or `~/.kube/config`, else the Pod's own ServiceAccount.
///
/// # Errors
/// None of them can be used; the error names the file, what is wrong with it, and what to do.
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
                "no way to an API server: this is no Pod with a ServiceAccount's token (see \
                 automountServiceAccountToken), and no kubeconfig is named; set KUBECONFIG to the path of one",
            );
        }
    };
    config.with_context(|| {
        format!("{what} cannot be used; it must be the path of a kubeconfig that names a cluster, a user and a context")
    })
}
