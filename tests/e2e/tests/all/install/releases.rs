//! Releases: installed, upgraded and uninstalled by helm, and by `kubectl apply -k` and `delete -k`, on an API server.

use crate::install::chart::{chart, run, tool};
use crate::install::manifests::folder;
use crate::install::site::SYSTEM;
use anyhow::{Context, ensure};
use autoscaler::install;
use common_api::ZeroScaler;
use e2e::bare;
use e2e::space::Namespaced;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use local::api::ApiServer;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

const REGISTRY: &str = "images.registry=zeroscale";

/// API server with a client, and with helm and kubectl that use its kubeconfig.
pub(crate) struct ToolCluster {
    _server: ApiServer,
    pub(crate) client: Client,
    pub(crate) folder: TempDir,
}

impl ToolCluster {
    pub(crate) async fn start(range: &str) -> anyhow::Result<Self> {
        let (server, client) = bare::start(range).await?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig())?;
        Ok(Self { _server: server, client, folder })
    }

    pub(crate) async fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        let home = self.folder.path();
        let mut command = Command::new(tool(program)?);
        command.args(args).env("KUBECONFIG", home.join("kubeconfig")).env("HOME", home).current_dir(folder());
        run(&mut command).await
    }

    /// Installs or upgrades the release with the chart and these further arguments.
    async fn helm(&self, verb: &str, args: &[&str]) -> anyhow::Result<String> {
        let chart = chart().display().to_string();
        let release = [verb, "zeroscale", &chart, "--namespace", SYSTEM, "--set", REGISTRY];
        self.run("helm", &[&release[..], args].concat()).await
    }

    /// Uninstalls the release without its hooks.
    async fn uninstall(&self) -> anyhow::Result<()> {
        self.run("helm", &["uninstall", "zeroscale", "--namespace", SYSTEM, "--no-hooks"]).await.map(drop)
    }

    pub(crate) fn api<K: Namespaced>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Returns the image of the autoscaler's Deployment.
    async fn image(&self) -> anyhow::Result<Option<String>> {
        let spec = self.api::<Deployment>(SYSTEM).get("autoscaler").await?.spec.context("a spec")?;
        Ok(spec.template.spec.and_then(|pod| pod.containers.into_iter().next()).and_then(|container| container.image))
    }

    async fn write_scaler(&self) -> anyhow::Result<()> {
        let scaler = bare::zeroscaler("kept", json!({"target": {"kind": "Deployment", "name": "kept"}}));
        bare::create(&self.client, Some("default"), scaler).await.map(drop)
    }

    /// Checks that everything is gone except the definition and the users' objects.
    async fn ensure_uninstalled(&self) -> anyhow::Result<()> {
        ensure!(self.api::<Deployment>(SYSTEM).get_opt("activator").await?.is_none(), "a Deployment");
        ensure!(self.api::<ServiceAccount>(SYSTEM).get_opt("autoscaler").await?.is_none(), "an account");
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        for role in ["zeroscale-autoscaler", "zeroscale-edit"] {
            ensure!(roles.get_opt(role).await?.is_none(), "the role {role}");
        }
        self.api::<ZeroScaler>("default").get("kept").await.context("the user's object")?;
        Ok(())
    }
}

/// Goal: the chart installs, an upgrade applies changed values, and uninstalling the release keeps the definition with
/// all users' objects.
#[tokio::test]
async fn helm_installs_upgrades_and_uninstalls() -> anyhow::Result<()> {
    let cluster = ToolCluster::start("127.203.128.0/17").await?;
    cluster.helm("install", &["--create-namespace"]).await?;
    let replicas = async || -> kube::Result<Option<i32>> {
        Ok(cluster.api::<Deployment>(SYSTEM).get("autoscaler").await?.spec.and_then(|spec| spec.replicas))
    };
    ensure!(replicas().await? == Some(2));
    cluster.write_scaler().await?;
    let set = ["--set", "autoscaler.replicas=3,images.tag=0.2.0,config.autoscaler.stable-window=30s"];
    cluster.helm("upgrade", &set).await?;
    let image = cluster.image().await?;
    assert_eq!((replicas().await?, image.as_deref()), (Some(3), Some("zeroscale/autoscaler:0.2.0")));
    let map = cluster.api::<ConfigMap>(SYSTEM).get("config-autoscaler").await?.data.unwrap_or_default();
    assert_eq!(map.get("stable-window").map(String::as_str), Some("30s"));
    check_hooks(&cluster).await?;
    cluster.uninstall().await?;
    cluster.ensure_uninstalled().await
}

/// Runs the hooks' functions: each fault of the installation is reported until there is none, and uninstalling begins
/// with the autoscalers.
async fn check_hooks(cluster: &ToolCluster) -> anyhow::Result<()> {
    let fault = async || install::verify(&cluster.client, SYSTEM, &[]).await.err().map(|error| format!("{error:#}"));
    let deployments = cluster.api::<Deployment>(SYSTEM);
    for plane in ["activator", "autoscaler"] {
        let found = fault().await.context("a fault")?;
        ensure!(found.contains(&format!("{SYSTEM}/{plane} has no ready pod")), "{found}");
        let ready = Patch::Merge(json!({"status": {"replicas": 1, "readyReplicas": 1}}));
        deployments.patch_status(plane, &PatchParams::default(), &ready).await?;
    }
    let found = fault().await.context("a fault")?;
    ensure!(found.contains("no autoscaler holds a Lease"), "{found}");
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "autoscaler-bucket-00-of-01"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 60, "renewTime": now}});
    bare::create(&cluster.client, Some(SYSTEM), lease).await?;
    assert_eq!(fault().await, None);
    let mut steps = Vec::new();
    install::end(&cluster.client, SYSTEM, &[], |step| steps.push(step)).await?;
    ensure!(steps.first().is_some_and(|step| step.contains("have ended")), "{steps:?}");
    assert_eq!(deployments.get("autoscaler").await?.spec.and_then(|spec| spec.replicas), Some(0));
    Ok(())
}

/// Goal: callers reach workloads that have not moved to a new range of ports yet: the activators' policy also keeps the
/// former range, and only that one, until the next upgrade. The default range is no exception.
#[tokio::test]
async fn a_former_range_of_ports_stays_open_until_the_next_upgrade() -> anyhow::Result<()> {
    let cluster = ToolCluster::start("127.209.128.0/17").await?;
    let ranges = async || -> anyhow::Result<Vec<(String, i32)>> {
        let spec = cluster.api::<NetworkPolicy>(SYSTEM).get("activator").await?.spec.context("a spec")?;
        let ports = spec.ingress.into_iter().flatten().flat_map(|rule| rule.ports.unwrap_or_default());
        Ok(ports.filter_map(|port| Some((format!("{:?}", port.port?), port.end_port?))).collect())
    };
    let range = |first: i32, last: i32| (format!("{:?}", IntOrString::Int(first)), last);
    cluster.helm("install", &["--create-namespace"]).await?;
    let (first, second, third) = (range(20000, 29999), range(30000, 30999), range(40000, 40999));
    assert_eq!(ranges().await?, std::slice::from_ref(&first));
    for (set, expected) in [
        ("config.ports.range=30000-30999", vec![second.clone(), first.clone()]),
        ("config.ports.range=40000-40999", vec![third.clone(), second]),
        ("config.ports.range=40000-40999", vec![third.clone()]),
        ("mode=standalone", vec![first, third]),
    ] {
        cluster.helm("upgrade", &["--set", set]).await?;
        assert_eq!(ranges().await?, expected, "{set}");
    }
    Ok(())
}

/// Goal: with `auto`, a cluster without the Prometheus Operator accepts the release, an upgrade adds its objects once
/// their kinds exist, and uninstalling removes them. With `true` the release is rejected, and nothing is left behind.
#[tokio::test]
async fn objects_for_the_prometheus_operator_are_added_once_it_exists() -> anyhow::Result<()> {
    let cluster = ToolCluster::start("127.207.128.0/17").await?;
    let get = async |kind: &str| cluster.run("kubectl", &["--namespace", SYSTEM, "get", kind, "-o", "name"]).await;
    let counts = async || -> anyhow::Result<(usize, usize)> {
        Ok((get("podmonitors").await?.lines().count(), get("prometheusrules").await?.lines().count()))
    };

    let always = ["--create-namespace", "--set", "monitoring.podMonitors=true,monitoring.rules=true"];
    cluster.helm("install", &always).await.err().context("accepted")?;
    ensure!(cluster.api::<Deployment>(SYSTEM).get_opt("activator").await?.is_none(), "a part of it remains");

    let set =
        ["--create-namespace", "--set", "monitoring.podMonitors=auto,monitoring.rules=auto,monitoring.board=true"];
    cluster.helm("install", &set).await?;
    ensure!(get("podmonitors").await.is_err(), "the kind exists");
    let board = cluster.api::<ConfigMap>(SYSTEM).get("zeroscale-board").await?;
    ensure!(board.data.is_some_and(|data| data.contains_key("zeroscale.json")));

    for (kind, plural) in [("PodMonitor", "podmonitors"), ("PrometheusRule", "prometheusrules")] {
        let crd = bare::definition("monitoring.coreos.com", "v1", kind, json!({}));
        bare::create(&cluster.client, None, crd).await?;
        let established = format!("crd/{plural}.monitoring.coreos.com");
        cluster.run("kubectl", &["wait", "--for=condition=Established", "--timeout=60s", &established]).await?;
    }
    cluster.helm("upgrade", &["--reset-then-reuse-values"]).await?;
    assert_eq!(counts().await?, (3, 1));
    cluster.uninstall().await?;
    assert_eq!(counts().await?, (0, 0));
    Ok(())
}

/// Goal: the same with the page's own commands: `apply -k` of a kustomization with its images, a later version over it,
/// a release of the chart that takes it over and is uninstalled, and `delete -k`.
#[tokio::test]
async fn kubectl_installs_upgrades_and_uninstalls() -> anyhow::Result<()> {
    let cluster = ToolCluster::start("127.204.128.0/17").await?;
    // Resources must be in or below the folder of the file, so the folder is copied.
    let own = cluster.folder.path().join("own");
    run(Command::new("cp").arg("-rL").arg(folder()).arg(&own)).await?;
    let kustomization = |tag: &str| {
        let images = json!([{"name": "zeroscale/autoscaler", "newName": "r.example.com/autoscaler", "newTag": tag}]);
        let resources = ["base", "standalone/user-roles.yaml"];
        std::fs::write(own.join("kustomization.yaml"), json!({"resources": resources, "images": images}).to_string())
    };
    let own = own.display().to_string();
    cluster.run("kubectl", &["apply", "--server-side", "-k", "crds"]).await?;
    for tag in ["1", "2"] {
        kustomization(tag)?;
        cluster.run("kubectl", &["apply", "--server-side", "-k", &own]).await?;
        assert_eq!(cluster.image().await?, Some(format!("r.example.com/autoscaler:{tag}")));
    }
    Api::<ClusterRole>::all(cluster.client.clone()).get("zeroscale-edit").await.context("what users may do")?;
    cluster.write_scaler().await?;
    // A release takes over applied objects, including fields that kubectl owns.
    cluster.helm("install", &["--take-ownership", "--force-conflicts"]).await?;
    assert_eq!(cluster.image().await?.as_deref(), Some("zeroscale/autoscaler:0.1.0"));
    cluster.uninstall().await?;
    cluster.ensure_uninstalled().await?;
    cluster.run("kubectl", &["apply", "--server-side", "-k", &own]).await?;
    cluster.run("kubectl", &["delete", "--ignore-not-found", "--wait=false", "-k", &own]).await?;
    cluster.ensure_uninstalled().await
}
