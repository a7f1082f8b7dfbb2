//! API server of a cluster: an embedded one, or an external one.

use crate::api::{ApiOptions, ApiServer};
use crate::up::options::UpOptions;
use crate::up::ranges::Ranges;
use anyhow::Context;
use kube::Config;
use kube::config::Kubeconfig;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Names of cluster, context and user in the kubeconfig of an embedded cluster.
const NAMES: [&str; 3] = ["zeroscale", "zeroscale", "admin"];

/// Starts an embedded server and writes its kubeconfig, with the address of the dashboard if there is one. Returns the
/// server, the client configuration of an administrator, and the path of the kubeconfig.
pub(super) async fn start(
    options: &UpOptions,
    ranges: &Ranges,
    folder: &Path,
    dashboard: Option<SocketAddr>,
) -> anyhow::Result<(ApiServer, Config, PathBuf)> {
    if let Some(path) = &options.kubeconfig {
        check_writable(path)?;
    }
    let audit = options.audit.clone();
    let api = ApiOptions { listen: options.api, audit, dashboard, ..ApiOptions::new(ranges.services) };
    let server = ApiServer::start(api)
        .await
        .with_context(|| format!("cannot listen on --api {}; choose another address, or port 0", options.api))?;
    let kubeconfig = options.kubeconfig.clone().unwrap_or_else(|| folder.join("kubeconfig"));
    server.write_kubeconfig(&kubeconfig)?;
    // Plain HTTP is enough, since it never leaves loopback.
    let mut config = Config::new(server.url().parse().context("the URL of the API server is not valid")?);
    config.auth_info.token = Some(server.token().to_owned().into());
    Ok((server, config, kubeconfig))
}

/// Fails unless the file may be overwritten: it is missing, empty, or the kubeconfig of an embedded cluster.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        read => read.with_context(|| format!("--kubeconfig {name} exists and cannot be read"))?,
    };
    anyhow::ensure!(
        text.trim().is_empty() || is_own(&text),
        "--kubeconfig {name} exists and does not belong to an embedded cluster; name a file that may be overwritten"
    );
    Ok(())
}

/// Reports whether this is a kubeconfig of an embedded cluster without additions.
fn is_own(text: &str) -> bool {
    let Ok(Kubeconfig { clusters, contexts, auth_infos, .. }) = Kubeconfig::from_yaml(text) else { return false };
    let names = clusters.iter().map(|cluster| &*cluster.name).chain(contexts.iter().map(|context| &*context.name));
    names.chain(auth_infos.iter().map(|user| &*user.name)).eq(NAMES)
}

pub(super) async fn external_config(path: &Path) -> anyhow::Result<Config> {
    let kubeconfig = Kubeconfig::read_from(path)
        .with_context(|| format!("--external {} cannot be read as a kubeconfig", path.display()))?;
    Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .with_context(|| format!("--external {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an existing kubeconfig of another cluster is not overwritten; one left by an embedded cluster is.
    #[tokio::test]
    async fn a_kubeconfig_of_another_cluster_is_not_overwritten() {
        let server = ApiServer::start(ApiOptions::new("10.96.0.0/16".parse().expect("a range"))).await;
        let own = server.expect("a free port").kubeconfig();
        let context = own.replace("contexts:\n", "contexts:\n- name: work\n  context: {cluster: work, user: me}\n");
        let user = own.replace("users:\n", "users:\n- name: me\n  user: {token: t}\n");
        let rows = [
            (None, true),
            (Some(""), true),
            (Some(&*own), true),
            (Some(&*context), false),
            (Some(&*user), false),
            (Some("apiVersion: v1\nkind: Config\n"), false),
            (Some("a: [\n"), false),
        ];
        for (text, is_writable) in rows {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("config");
            if let Some(text) = text {
                std::fs::write(&path, text).expect("written");
            }
            let checked = check_writable(&path);
            assert_eq!(checked.is_ok(), is_writable, "{text:?}: {checked:?}");
        }
    }
}
