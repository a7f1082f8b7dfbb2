//! The kustomizations against the embedded API server: every object is accepted, and its references exist.

use crate::install::chart::tool;
use anyhow::{Context, ensure};
use common::config::{
    AutoscalerConfig, ConfigError, DeploymentConfig, LeaderElectionConfig, LogLevel, NetworkConfig, PortsConfig,
};
use e2e::bare;
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes")
}

/// Parses all objects in a text of YAML.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents = serde_yaml_ng::Deserializer::from_str(text).map(Value::deserialize);
    Ok(documents.filter(|document| !matches!(document, Ok(Value::Null))).collect::<Result<_, _>>()?)
}

/// Returns all objects of one file.
pub(crate) fn documents(path: &Path) -> anyhow::Result<Vec<Value>> {
    let read = std::fs::read_to_string(path).map_err(Into::into).and_then(|text| parse(&text));
    read.with_context(|| path.display().to_string())
}

/// Returns all objects of a kustomization, as `kubectl kustomize` builds it.
pub(crate) fn objects(kustomization: &str) -> anyhow::Result<Vec<Value>> {
    let folder = folder().join(kustomization);
    let built = std::process::Command::new(tool("kubectl")?).arg("kustomize").arg(&folder).output()?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    parse(&String::from_utf8(built.stdout)?).with_context(|| folder.display().to_string())
}

/// Applies an object, or only checks that it would be accepted.
pub(crate) async fn apply(client: &Client, object: &Value, dry: bool) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let api = bare::api_of(client, object.metadata.namespace.as_deref(), &object)?;
    let name = object.metadata.name.clone().context("a name")?;
    // The same parameters as `kubectl apply --server-side --validate=strict`.
    let params = PatchParams { dry_run: dry, ..PatchParams::apply("test").validation_strict() };
    let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
    applied.with_context(|| format!("{:?} {name}", object.types)).map(drop)
}

pub(crate) async fn apply_all(client: &Client, kustomization: &str) -> anyhow::Result<()> {
    for object in objects(kustomization)? {
        apply(client, &object, false).await?;
    }
    Ok(())
}

/// Goal: every object of every kustomization passes strict validation, and applying it again changes nothing.
#[tokio::test]
async fn every_object_passes_strict_validation() -> anyhow::Result<()> {
    let (_server, client) = bare::start("127.201.128.0/17").await?;
    let mut installed = objects("standalone")?;
    for addition in ["native", "custom-metrics", "argo-rollouts", "openshift", "namespaced"] {
        installed.extend(objects(addition)?);
    }
    for object in &installed {
        apply(&client, object, false).await?;
    }
    for object in &installed {
        apply(&client, object, true).await?;
    }
    let kinds: BTreeSet<&str> = installed.iter().filter_map(|object| object["kind"].as_str()).collect();
    for kind in ["Namespace", "Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy"] {
        ensure!(kinds.contains(kind), "no {kind}");
    }
    for object in objects("knative")? {
        apply(&client, &object, true).await?;
    }
    Ok(())
}

/// Goal: the reader's own kustomization, which the install page deletes, leaves the definitions, whose deletion would
/// remove all users' objects. Together with the definitions, which the page applies separately, it equals `standalone`,
/// including the users' roles.
#[test]
fn uninstalling_leaves_the_definitions() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(folder().join("README.md"))?;
    let own =
        page.split("# kustomization.yaml").nth(1).and_then(|rest| rest.split("```").next()).context("its file")?;
    let own: Value = serde_yaml_ng::from_str(own)?;
    let mut installed = objects("crds")?;
    for resource in own["resources"].as_array().context("resources")? {
        let path = format!("../../{}", resource.as_str().context("a path")?);
        let file = folder().join(&path);
        installed.extend(if file.is_dir() { objects(&path)? } else { documents(&file)? });
    }
    let names = |all: &[Value]| -> BTreeSet<String> {
        all.iter().map(|object| format!("{} {}", object["kind"], object["metadata"]["name"])).collect()
    };
    assert_eq!(names(&installed), names(&objects("standalone")?));
    let deletions: Vec<&str> = page.lines().filter(|line| line.starts_with("$ kubectl delete -")).collect();
    assert_eq!(deletions, ["$ kubectl delete --ignore-not-found -k ."]);
    assert!(page.contains("kubectl apply --server-side -k deploy/kubernetes/crds"));
    let definitions = |folder: &str| -> anyhow::Result<usize> {
        let objects = objects(folder)?;
        Ok(objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition").count())
    };
    assert_eq!((definitions("base")?, definitions("standalone")?, definitions("knative")?), (0, 1, 0));
    Ok(())
}

/// Goal: the manifests are consistent. Only the owner of a number of replicas sets it. Pods conform to the restricted
/// profile. Images have the workspace's version. A plane that waits at its start is not killed for it. An autoscaler is
/// ready once it can act. Every policy, Service and budget selects existing pods, and no budget blocks a node drain
/// because of pods that are not ready.
#[test]
fn manifests_are_consistent() -> anyhow::Result<()> {
    for folder in ["standalone", "namespaced", "native", "knative"] {
        let all = objects(folder)?;
        let of_kind = |kind: &str| all.iter().filter(|object| object["kind"] == kind).collect::<Vec<_>>();
        let deployments = of_kind("Deployment");
        for deployment in &deployments {
            let (name, spec) = (&deployment["metadata"]["name"], &deployment["spec"]);
            let scaled =
                of_kind("HorizontalPodAutoscaler").iter().any(|hpa| hpa["spec"]["scaleTargetRef"]["name"] == *name);
            ensure!(!scaled || spec.get("replicas").is_none(), "{folder}: {name} has replicas and an autoscaler");
            // The owner of Knative's components decides about their number.
            ensure!(folder != "knative" || spec.get("replicas").is_none(), "{folder}: {name} has replicas");
            let pod = &spec["template"]["spec"];
            for container in pod["containers"].as_array().context("containers")? {
                let image = container["image"].as_str().unwrap_or_default();
                ensure!(image.ends_with(concat!(":", env!("CARGO_PKG_VERSION"))), "{folder}: {image}");
                let own = &container["securityContext"];
                ensure!(own["readOnlyRootFilesystem"] == true && own["allowPrivilegeEscalation"] == false, "{name}");
                ensure!(own["capabilities"]["drop"][0] == "ALL", "{name}");
                let non_root = [own, &pod["securityContext"]].into_iter().any(|c| c["runAsNonRoot"] == true);
                ensure!(non_root, "{folder}: {name} may run as root");
                let readiness = &container["readinessProbe"]["httpGet"]["path"];
                ensure!(*name != "autoscaler" || *readiness == "/ready", "{folder}: {readiness}");
                // Until it knows its workloads, its readiness fails for as long as necessary.
                let liveness = &container["livenessProbe"]["httpGet"]["path"];
                if liveness == readiness || *name == "autoscaler" {
                    let startup = &container["startupProbe"];
                    ensure!(startup["httpGet"] == container["livenessProbe"]["httpGet"], "{folder}: {name}: {startup}");
                    let number = |field: &str| startup[field].as_u64().unwrap_or_default();
                    let seconds = number("periodSeconds") * number("failureThreshold");
                    ensure!(seconds > 14 * 24 * 3600, "{folder}: {name} is ended while it waits");
                }
            }
        }
        let selects = |selector: &Value| {
            let wanted = selector.get("matchLabels").unwrap_or(selector).as_object();
            wanted.is_some_and(|wanted| {
                deployments.iter().any(|deployment| {
                    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
                    wanted.iter().all(|(key, value)| labels[key] == *value)
                })
            })
        };
        for budget in of_kind("PodDisruptionBudget") {
            let (name, policy) = (&budget["metadata"]["name"], &budget["spec"]["unhealthyPodEvictionPolicy"]);
            ensure!(*policy == "AlwaysAllow", "{folder}: {name}: unhealthyPodEvictionPolicy: {policy}");
        }
        for kind in ["NetworkPolicy", "PodDisruptionBudget", "Service", "Deployment"] {
            for object in of_kind(kind) {
                let field = if kind == "NetworkPolicy" { "podSelector" } else { "selector" };
                let name = &object["metadata"]["name"];
                ensure!(selects(&object["spec"][field]), "{folder}: {kind} {name} selects nothing");
            }
        }
    }
    Ok(())
}

/// Goal: each PodMonitor selects the pods of one of our components and no others, alongside ordinary Deployments or in
/// place of Knative's. The alternative scrape configuration uses the same labels and namespaces.
#[test]
fn each_pod_monitor_selects_one_of_our_components() -> anyhow::Result<()> {
    let scrape = std::fs::read_to_string(folder().join("monitoring/scrape.yaml"))?;
    for (monitors, installs, others) in [
        ("monitoring", &["standalone", "native"][..], "knative"),
        ("monitoring/knative", &["knative"][..], "standalone"),
    ] {
        let pods = |folders: &[&str]| -> anyhow::Result<Vec<Value>> {
            let all: Vec<Vec<Value>> = folders.iter().map(|folder| objects(folder)).collect::<anyhow::Result<_>>()?;
            Ok(all.concat().into_iter().filter(|object| object["kind"] == "Deployment").collect())
        };
        let mut found = Vec::new();
        for monitor in objects(monitors)?.iter().filter(|object| object["kind"] == "PodMonitor") {
            let spec = &monitor["spec"];
            let wanted = spec["selector"]["matchLabels"].as_object().context("labels")?;
            let is = |deployment: &&Value| {
                let labels = &deployment["spec"]["template"]["metadata"]["labels"];
                wanted.iter().all(|(key, value)| labels[key] == *value)
            };
            let names = |all: &[Value]| -> Vec<String> {
                let selected = all.iter().filter(is);
                selected.filter_map(|object| Some(object["metadata"]["name"].as_str()?.to_owned())).collect()
            };
            let (ours, endpoint) = (names(&pods(installs)?), &spec["podMetricsEndpoints"][0]);
            assert_eq!(names(&pods(&[others])?), [""; 0], "{monitor}");
            ensure!(ours.len() == 1, "{monitor}: {ours:?}");
            assert_eq!(endpoint["relabelings"][0]["replacement"], format!("zeroscale-{}", ours[0]));
            for deployment in pods(installs)?.iter().filter(is) {
                let ports = &deployment["spec"]["template"]["spec"]["containers"][0]["ports"];
                let mut ports = ports.as_array().into_iter().flatten();
                ensure!(ports.any(|port| port["name"] == endpoint["port"]), "{ours:?}");
                let namespace = match &spec["namespaceSelector"] {
                    Value::Null => &monitor["metadata"]["namespace"],
                    selector => &selector["matchNames"][0],
                };
                assert_eq!(deployment["metadata"]["namespace"], *namespace, "{ours:?}");
                let label = &wanted["app.kubernetes.io/name"];
                let (namespace, label) = (namespace.as_str().context("a name")?, label.as_str().context("a label")?);
                ensure!(scrape.contains(namespace) && scrape.contains(&format!(";{label}")), "{namespace};{label}");
            }
            found.extend(ours);
        }
        found.sort();
        assert_eq!(found, ["activator", "autoscaler", "autoscaler-hpa"], "{monitors}");
    }
    Ok(())
}

/// Goal: OpenShift's admission accepts our pods: each sets its own user and group, so its account may use the
/// constraints that permit any non-root user, and only those.
#[test]
fn accounts_on_openshift_may_use_the_constraints_of_their_pods() -> anyhow::Result<()> {
    let rights = objects("openshift")?;
    let named = |kind: &str, name: &Value| {
        rights.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == *name).context("a role")
    };
    let mut accounts = BTreeSet::new();
    for binding in rights.iter().filter(|object| object["kind"] == "RoleBinding") {
        let rules =
            &named(binding["roleRef"]["kind"].as_str().context("a kind")?, &binding["roleRef"]["name"])?["rules"];
        let expected = serde_json::json!([{"apiGroups": ["security.openshift.io"], "resources": ["securitycontextconstraints"],
            "resourceNames": ["nonroot-v2"], "verbs": ["use"]}]);
        assert_eq!(*rules, expected);
        for subject in binding["subjects"].as_array().context("subjects")? {
            assert_eq!(subject["namespace"], binding["metadata"]["namespace"]);
            accounts.insert(subject["name"].to_string());
        }
    }
    let mut used = BTreeSet::new();
    for folder in ["standalone", "native"] {
        for deployment in objects(folder)?.iter().filter(|object| object["kind"] == "Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            let context = &pod["securityContext"];
            ensure!(context["runAsUser"] == context["fsGroup"] && context["runAsNonRoot"] == true, "{context}");
            used.insert(pod["serviceAccountName"].to_string());
        }
    }
    assert_eq!(accounts, used);
    Ok(())
}

/// Reads the manual of one ConfigMap: keys, and the documented default of each.
fn manual(object: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    let text = object["data"]["_example"].as_str().context("_example")?;
    let values: BTreeMap<String, Value> = serde_yaml_ng::from_str(text)?;
    values.into_iter().map(|(key, value)| Ok((key, value.as_str().context("values are text")?.to_owned()))).collect()
}

type Data = BTreeMap<String, String>;

/// Checks that the documented defaults are the code's, and that the code knows every key except `free`, which take any
/// text.
fn check<T: PartialEq + std::fmt::Debug>(
    manual: &Data,
    default: &Data,
    free: &[&str],
    parse: impl Fn(&Data) -> Result<T, ConfigError>,
) -> anyhow::Result<()> {
    let whole = parse(manual)?;
    ensure!(whole == parse(default)?, "these are not the defaults: {whole:?}");
    for key in manual.keys().filter(|key| !free.contains(&key.as_str())) {
        let mut data = manual.clone();
        data.insert(key.clone(), "nonsense".into());
        ensure!(parse(&data).is_err_and(|error| error.key == *key), "{key} is not read");
    }
    Ok(())
}

/// Goal: the ConfigMaps' comments list every key that is read, and its correct default.
#[test]
fn the_documented_configuration_matches_the_code() -> anyhow::Result<()> {
    let all = objects("standalone")?;
    let of = |name: &str| {
        let found = all.iter().find(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == name);
        found.with_context(|| format!("ConfigMap {name}")).and_then(manual)
    };
    let map = of("config-autoscaler")?;
    let mut keys = AutoscalerConfig::KEYS.to_vec();
    keys.sort_unstable();
    assert_eq!(map.keys().collect::<Vec<_>>(), keys, "one for each field of AutoscalerConfig");
    check(&map, &Data::new(), &["pod-autoscaler-class"], AutoscalerConfig::from_map)?;
    check(&of("config-deployment")?, &Data::new(), &[], DeploymentConfig::from_map)?;
    check(&of("config-network")?, &Data::new(), &["mesh-compatibility-mode"], NetworkConfig::from_map)?;
    ensure!(of("config-page")?.keys().eq(["html"]), "its one key");
    check(&of("config-ports")?, &Data::new(), &[], PortsConfig::from_map)?;
    let election = of("config-leader-election")?;
    check(&election, &election, &[], LeaderElectionConfig::from_map)?;
    let read = LeaderElectionConfig::from_map(&election)?;
    assert_eq!((read.buckets, read.timing), (4, common_runtime::lease::Timing::STANDALONE));
    for plane in ["activator", "autoscaler"] {
        let own = format!("loglevel.{plane}");
        let map = of("config-logging")?.into_iter().filter(|(key, _)| *key == own).collect();
        check(&map, &Data::new(), &[], |data| LogLevel::from_map(data, plane))?;
    }
    let observability = of("config-observability")?;
    let keys: Vec<_> = observability.keys().map(String::as_str).collect();
    assert_eq!(keys, ["logging.enable-request-log", "logging.request-log-template"]);
    Ok(())
}
