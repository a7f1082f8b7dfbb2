//! Installation whose planes are the binaries themselves, each with a token of its own account, on an API server from
//! which a test can remove objects.

use crate::install::manifests::apply_all;
use anyhow::Context;
use common_runtime::namespaces::Namespaces;
use e2e::process::LogLines;
use e2e::{Process, Workload, bare};
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client};
use local::api::{ApiOptions, ApiServer, Audit};
use local::up::system;
use local::usage::UsageTable;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use tempfile::TempDir;

pub(crate) const SYSTEM: &str = system::NAMESPACE;

/// One of the binaries, as its manifest starts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plane {
    /// Name of the binary, and of its account.
    pub(crate) binary: &'static str,
    args: &'static [&'static str],
    port: u16,
}

pub(crate) const ACTIVATOR: Plane = Plane { binary: "activator", args: &[], port: 8012 };
pub(crate) const AUTOSCALER: Plane = Plane { binary: "autoscaler", args: &[], port: 8080 };
pub(crate) const HPA: Plane = Plane { binary: "autoscaler-hpa", args: &["--hpa=native"], port: 8080 };

/// API server with everything installed except the planes.
pub(crate) struct Site {
    server: ApiServer,
    pub(crate) client: Client,
    folder: TempDir,
}

pub(crate) struct Running {
    pub(crate) plane: Plane,
    pub(crate) address: SocketAddr,
    pub(crate) process: Process,
    pub(crate) log: LogLines,
}

impl Site {
    pub(crate) async fn install() -> anyhow::Result<Self> {
        Self::audited(None).await
    }

    /// Installs everything on an API server that reports its requests.
    pub(crate) async fn audited(audit: Option<Audit>) -> anyhow::Result<Self> {
        let options = ApiOptions { audit, ..ApiOptions::new("127.202.128.0/17".parse()?) };
        let server = ApiServer::start(options).await?;
        server.set_usage(UsageTable::default()); // Corresponds to a metrics server without data.
        let client = bare::client(&server).await?;
        system::create(&client, None, &Namespaces::default()).await?;
        apply_all(&client, "native").await?;
        Ok(Self { server, client, folder: tempfile::tempdir()? })
    }

    pub(crate) fn address(&self) -> anyhow::Result<SocketAddr> {
        let file = self.file()?;
        let url = file["clusters"][0]["cluster"]["server"].as_str().context("a server")?;
        Ok(url.trim_start_matches("https://").parse()?)
    }

    /// Returns an administrator's kubeconfig.
    fn file(&self) -> anyhow::Result<Value> {
        Ok(serde_yaml_ng::from_str(&self.server.kubeconfig())?)
    }

    /// Writes a kubeconfig of `account` with the API server at `at`. With `trusts`, certificates are not verified.
    pub(crate) async fn kubeconfig(&self, account: &str, at: SocketAddr, trusts: bool) -> anyhow::Result<PathBuf> {
        let token = e2e::accounts::token(&self.client, (SYSTEM, account), &[], None).await?;
        let mut file = self.file()?;
        let cluster = &mut file["clusters"][0]["cluster"];
        cluster["server"] = json!(format!("https://{at}"));
        if trusts {
            cluster["certificate-authority-data"] = Value::Null;
            cluster["insecure-skip-tls-verify"] = json!(true);
        }
        let path = self.folder.path().join(format!("{account}.kubeconfig"));
        std::fs::write(&path, e2e::accounts::with_token(&file.to_string(), &token)?)?;
        Ok(path)
    }

    /// Starts a plane under its own account, with the API server at `at`.
    pub(crate) async fn start(&self, plane: Plane, at: SocketAddr, trusts: bool) -> anyhow::Result<Running> {
        let kubeconfig = self.kubeconfig(plane.binary, at, trusts).await?;
        let ip = free_address()?;
        let (process, log) = run(plane, ip, &[("KUBECONFIG", kubeconfig.display().to_string())])?;
        Ok(Running { plane, address: SocketAddr::new(ip, plane.port), process, log })
    }
}

/// Starts a plane with its manifest's environment and `more`.
pub(crate) fn run(plane: Plane, ip: IpAddr, more: &[(&'static str, String)]) -> anyhow::Result<(Process, LogLines)> {
    let mut env = vec![
        ("ZEROSCALE_MODE", "standalone".to_owned()),
        ("POD_NAME", format!("{}-0", plane.binary)),
        ("POD_IP", ip.to_string()),
        ("SYSTEM_NAMESPACE", SYSTEM.to_owned()),
        ("CLUSTER_DOMAIN", system::DOMAIN.to_owned()),
        ("ZEROSCALE_LISTEN_ADDRESS", ip.to_string()),
        // Unused address: these tests have no stats.
        ("ZEROSCALE_STAT_URL", "ws://127.0.0.1:9".to_owned()),
    ];
    env.extend_from_slice(more);
    Process::start_logged(plane.binary, plane.args, &env)
}

/// Returns a loopback address on which no other plane of a test listens. Clusters use addresses from 127.32.0.0 on.
pub(crate) fn free_address() -> anyhow::Result<IpAddr> {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let second = u8::try_from(2 + std::process::id() % 28)?;
    let third = u8::try_from(std::process::id() / 28 % 250)?;
    Ok(IpAddr::from([127, second, third, COUNT.fetch_add(1, Ordering::Relaxed)]))
}

impl Running {
    /// Returns lines of warnings and errors that contain none of `expected`.
    pub(crate) fn surplus(&self, expected: &[&str]) -> Vec<String> {
        let lines = ["WARN", "ERROR"].into_iter().flat_map(|level| self.log.with(&[&format!("\"level\":\"{level}\"")]));
        // Lines about stats, which have no receiver here, and about kubeconfigs without certificate verification.
        let always = ["the link to", "Server cert bypassed"];
        lines.filter(|line| !always.iter().chain(expected).any(|part| line.contains(part))).collect()
    }

    /// Reports whether the plane currently works on this site.
    pub(crate) async fn works(&self, site: &Site) -> anyhow::Result<bool> {
        match self.plane.binary {
            "activator" => {
                let answer = e2e::Load::new(self.address, "nobody.example.com").get("/").await;
                Ok(answer.is_ok_and(|answer| answer.status == 404))
            }
            "autoscaler" => {
                let hello = Workload::new("hello").set("services", json!([{"name": "hello", "create": true}]));
                create_if_missing(site, hello.deployment("hello")).await?;
                create_if_missing(site, hello.scaler()).await?;
                let scalers: Api<common_api::ZeroScaler> = Api::namespaced(site.client.clone(), "default");
                let status = scalers.get_opt("hello").await?.and_then(|scaler| scaler.status);
                Ok(status.is_some_and(|status| status.observed_generation.is_some()))
            }
            _ => {
                create_if_missing(site, Workload::new("scaled").replicas(1).deployment("hello")).await?;
                create_if_missing(site, hpa_with_two_replicas("scaled")).await?;
                let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
                    Api::namespaced(site.client.clone(), "default");
                Ok(deployments.get("scaled").await?.spec.and_then(|spec| spec.replicas) == Some(2))
            }
        }
    }
}

/// Returns a HorizontalPodAutoscaler that requires two replicas, whatever the usage.
fn hpa_with_two_replicas(target: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": target},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 2, "maxReplicas": 4,
            "metrics": [{"type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
        },
    })
}

/// Creates an object in the namespace `default` if it does not exist.
async fn create_if_missing(site: &Site, object: Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let api = bare::api_of(&site.client, Some("default"), &object)?;
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(|_| ()).map_err(Into::into),
    }
}
