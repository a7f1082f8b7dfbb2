//! Runs Pods as processes of the workspace's binaries, like a kubelet without images and probes.
//!
//! Environment, mounted files and permissions are the Pod's own. In addition, a process gets the address of the API
//! server and its own loopback address, and resolves Services by their endpoints, since there is no DNS.

use crate::accounts;
use crate::process::{LogLines, Process};
use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Secret, Volume};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Runs Pods of one namespace.
pub struct Kubelet {
    client: Client,
    namespace: String,
    /// An administrator's kubeconfig.
    kubeconfig: String,
    folder: TempDir,
}

impl Kubelet {
    /// Creates a kubelet with a folder for the files of its Pods. `kubeconfig` is an administrator's.
    pub fn new(client: Client, namespace: &str, kubeconfig: String) -> anyhow::Result<Self> {
        Ok(Self { client, namespace: namespace.to_owned(), kubeconfig, folder: tempfile::tempdir()? })
    }

    /// Runs the only container of a Pod with the workspace's `binary` at this address. Returns the process and its log.
    /// Fails if the Pod uses an unsupported feature.
    pub async fn run(&self, pod: &Pod, binary: &str, ip: IpAddr) -> anyhow::Result<(Process, LogLines)> {
        let spec = pod.spec.as_ref().context("a spec")?;
        let [container] = spec.containers.as_slice() else { bail!("{}: not one container", pod.name_any()) };
        let root = self.folder.path().join(pod.name_any());
        self.mount(pod, spec, container, &root).await?;
        let mut env = vec![
            ("KUBECONFIG", self.own_kubeconfig(pod, spec, &root).await?.display().to_string()),
            ("CLUSTER_DOMAIN", "cluster.local".to_owned()),
            ("ZEROSCALE_LISTEN_ADDRESS", ip.to_string()),
            ("ZEROSCALE_RESOLVER", "endpoints".to_owned()),
        ];
        ensure!(container.env_from.is_none(), "{}: envFrom is not supported", container.name);
        for variable in container.env.iter().flatten() {
            let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
            let is_supported = variable.value_from.is_none() || field.is_some();
            ensure!(is_supported, "{}: its source is not supported", variable.name);
            let value = match (field.map(|field| field.field_path.as_str()), variable.value.as_deref().unwrap_or("")) {
                (Some("metadata.name"), _) => pod.name_any(),
                (Some("metadata.namespace"), _) => self.namespace.clone(),
                (Some("status.podIP"), _) => ip.to_string(),
                (Some(other), _) => bail!("{}: {other} is not supported", variable.name),
                (None, path) if path.starts_with('/') => within(&root, path).display().to_string(),
                (None, value) => value.to_owned(),
            };
            env.push((variable.name.as_str(), value));
        }
        Process::start_logged(binary, &[], &env)
    }

    /// Sets a Pod's address and marks it ready.
    pub async fn set_ready(client: &Client, pod: &Pod, ip: IpAddr) -> anyhow::Result<()> {
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().context("a namespace")?);
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions});
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Writes the files of a container's volumes below `root`.
    async fn mount(&self, pod: &Pod, spec: &PodSpec, container: &Container, root: &Path) -> anyhow::Result<()> {
        for mount in container.volume_mounts.iter().flatten() {
            let at = within(root, &mount.mount_path);
            fs::create_dir_all(&at)?;
            let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
            let volume = volume.with_context(|| format!("no volume {}", mount.name))?;
            for (path, content) in self.files(pod, spec, volume).await? {
                fs::write(at.join(path), content)?;
            }
        }
        Ok(())
    }

    async fn files(&self, pod: &Pod, spec: &PodSpec, volume: &Volume) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let is_supported = volume.secret.is_some() || volume.projected.is_some() || volume.empty_dir.is_some();
        ensure!(is_supported, "volume {}: its kind is not supported", volume.name);
        let mut files = Vec::new();
        if let Some(source) = &volume.secret {
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
            let secret = secrets.get(source.secret_name.as_deref().context("a Secret's name")?).await?;
            let is_wanted = |key: &str| source.items.as_ref().is_none_or(|all| all.iter().any(|item| item.key == key));
            let data = secret.data.unwrap_or_default().into_iter();
            files.extend(data.filter(|(key, _)| is_wanted(key)).map(|(key, value)| (key, value.0)));
        }
        for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
            let token = source.service_account_token.as_ref().context("only tokens are supported")?;
            let audience: Vec<&str> = token.audience.as_deref().into_iter().collect();
            files.push((token.path.clone(), self.token(pod, spec, &audience).await?.into_bytes()));
        }
        Ok(files)
    }

    /// Requests a token of the Pod's account.
    async fn token(&self, pod: &Pod, spec: &PodSpec, audiences: &[&str]) -> anyhow::Result<String> {
        let account = spec.service_account_name.as_deref().context("an account")?;
        accounts::token(&self.client, (&self.namespace, account), audiences, Some(&pod.name_any())).await
    }

    /// Writes a kubeconfig with the Pod's own permissions.
    async fn own_kubeconfig(&self, pod: &Pod, spec: &PodSpec, root: &Path) -> anyhow::Result<PathBuf> {
        let token = self.token(pod, spec, &[]).await?;
        let path = root.join("kubeconfig");
        fs::create_dir_all(root)?;
        fs::write(&path, accounts::with_token(&self.kubeconfig, &token)?)?;
        Ok(path)
    }
}

/// Maps an absolute path in a container to a path below the container's root folder.
fn within(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
