//! The Helm chart, rendered by helm: it equals the kustomizations.

use crate::install::manifests::{folder, objects, parse};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use tokio::process::Command;

/// Returns the path of a program from `.ci/tools`.
pub(crate) fn tool(name: &str) -> anyhow::Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/tools");
    let output = std::process::Command::new(script).arg(name).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

pub(crate) async fn run(command: &mut Command) -> anyhow::Result<String> {
    let Output { status, stdout, stderr } = command.output().await?;
    ensure!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    Ok(String::from_utf8(stdout)?)
}

pub(crate) fn chart() -> PathBuf {
    folder().join("chart")
}

/// Renders the chart with these values, for a release in this namespace, without its hooks. The image registry is
/// `zeroscale` unless the values set it.
async fn render(namespace: &str, with: &Value) -> anyhow::Result<Vec<Value>> {
    let mut with = with.clone();
    if with.pointer("/images/registry").is_none() {
        with["images"]["registry"] = json!("zeroscale");
    }
    render_with(&["--no-hooks"], namespace, &with).await
}

async fn render_with(flags: &[&str], namespace: &str, with: &Value) -> anyhow::Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    let values = folder.path().join("values.yaml");
    std::fs::write(&values, with.to_string())?;
    let mut helm = Command::new(tool("helm")?);
    helm.args(["template", "zeroscale", "--namespace", namespace]).args(flags);
    parse(&run(helm.arg("--values").arg(values).arg(chart())).await?)
}

/// Returns objects by kind, namespace and name.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let name = |object: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let meta = &object["metadata"];
        format!("{} {}/{}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]))
    };
    objects.into_iter().map(|object| (name(&object), object)).collect()
}

/// Converts floats without a fraction to integers: some writers print `0.0` as `0`.
fn unify_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15);
            if let Some(integer) = float.and_then(|float| format!("{float:.0}").parse::<i64>().ok()) {
                *value = integer.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(unify_numbers),
        Value::Object(fields) => fields.values_mut().for_each(unify_numbers),
        _ => {}
    }
}

/// Compares the objects of two lists, in any order.
fn assert_same_objects(what: &str, mut rendered: Vec<Value>, mut expected: Vec<Value>) -> anyhow::Result<()> {
    rendered.iter_mut().chain(&mut expected).for_each(unify_numbers);
    let (rendered, expected) = (by_name(rendered), by_name(expected));
    assert_eq!(rendered.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (name, object) in expected {
        assert_eq!(rendered[&name], object, "{what}: {name}");
    }
    Ok(())
}

/// Returns the objects of kustomizations in the chart's form: helm creates the namespace, and the definition is kept.
fn chart_objects(folders: &[&str]) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for folder in folders {
        all.extend(objects(folder)?);
    }
    all.retain(|object| object["kind"] != "Namespace");
    for object in all.iter_mut().filter(|object| object["kind"] == "CustomResourceDefinition") {
        object["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    }
    Ok(all)
}

/// Moves objects to another namespace, like `namespace` of a kustomization.
fn in_namespace(namespace: &str, mut all: Vec<Value>) -> Vec<Value> {
    for object in &mut all {
        if object["metadata"].get("namespace").is_some() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            subject["namespace"] = json!(namespace);
        }
    }
    all
}

#[tokio::test]
async fn the_chart_renders_the_kustomizations_objects() -> anyhow::Result<()> {
    let system = "zeroscale-system";
    let rights = json!({"customMetrics": true, "argoRollouts": true, "openshift": true, "podLogs": true});
    let monitoring = json!({"podMonitors": true, "rules": true, "board": true});
    let additions = vec!["standalone", "native", "custom-metrics", "argo-rollouts", "openshift", "pod-logs"];
    let rows = [
        (system, json!({}), vec!["standalone"]),
        (system, json!({"crds": {"install": false}, "userRoles": false}), vec!["base"]),
        (system, json!({"hpa": {"install": true}, "rights": rights}), additions),
        (system, json!({"monitoring": monitoring}), vec!["standalone", "monitoring"]),
        ("knative-serving", json!({"mode": "knative", "hpa": {"install": true}}), vec!["knative"]),
        ("knative-serving", json!({"mode": "knative", "knative": {"autoscaler": false}}), vec!["knative/activator"]),
    ];
    for (namespace, values, folders) in rows {
        assert_same_objects(&values.to_string(), render(namespace, &values).await?, chart_objects(&folders)?)?;
    }
    let values = json!({"mode": "knative", "hpa": {"install": true}, "monitoring": monitoring});
    let mut expected = chart_objects(&["monitoring"])?;
    expected.retain(|object| object["kind"] != "PodMonitor"); // It monitors pods that do not exist here.
    expected = in_namespace("knative-serving", expected);
    expected.extend(chart_objects(&["knative"])?);
    expected.extend(in_namespace("knative-serving", chart_objects(&["monitoring/knative"])?));
    assert_same_objects("monitoring of Knative's", render("knative-serving", &values).await?, expected)?;
    // If Knative is in another namespace, missing targets there may be Knative's own.
    let elsewhere = serde_json::to_string(&render("kn", &values).await?)?;
    ensure!(elsewhere.contains("namespace!=\\\"kn\\\"") && elsewhere.contains(r#""matchNames":["kn"]"#));
    ensure!(!elsewhere.contains("\\\"knative-serving\\\""), "{elsewhere}");
    // In another namespace, a variable contains that name instead of a reference to it.
    let values = json!({"namespaces": ["shop"], "crds": {"install": false}});
    let mut expected = in_namespace("shop", chart_objects(&["namespaced"])?);
    for entry in expected.iter_mut().filter_map(environment).flatten() {
        if entry["name"] == "ZEROSCALE_NAMESPACES" {
            *entry = json!({"name": "ZEROSCALE_NAMESPACES", "value": "shop"});
        }
    }
    expected.iter_mut().for_each(sort_environment);
    let mut rendered = render("shop", &values).await?;
    rendered.iter_mut().for_each(sort_environment);
    assert_same_objects("one namespace", rendered, expected)
}

fn environment(object: &mut Value) -> Option<&mut Vec<Value>> {
    object.pointer_mut("/spec/template/spec/containers/0/env").and_then(Value::as_array_mut)
}

fn sort_environment(object: &mut Value) {
    if let Some(env) = environment(object) {
        env.sort_by_key(|entry| entry["name"].as_str().unwrap_or_default().to_owned());
    }
}

/// Checks fields, given by the name of their object and by a pointer.
fn assert_fields<const N: usize>(all: &BTreeMap<String, Value>, rows: [(&str, String, Value); N]) {
    for (name, pointer, expected) in rows {
        let found = all.get(name).and_then(|object| object.pointer(&pointer));
        assert_eq!(found, Some(&expected), "{name} {pointer}");
    }
}

#[tokio::test]
async fn each_value_has_exactly_its_effect() -> anyhow::Result<()> {
    let values = json!({
        "namespaces": ["shop", "stage"],
        "images": {"registry": "r.example.com/z", "tag": "9", "pullPolicy": "Always", "pullSecrets": ["s"]},
        "activator": {
            "autoscaling": {"minReplicas": 3, "maxReplicas": 5, "averageUtilization": 80},
            "env": {"ZEROSCALE_TRUSTED_PROXIES": "10.0.0.0/8", "ZEROSCALE_MEMORY_LIMIT": 1_000_000_000},
            "resources": {"limits": {"memory": "1Gi"}}, "podSpec": {"nodeSelector": {"a": "b"}},
        },
        "autoscaler": {"replicas": 3, "podAnnotations": {"x": "y"}},
        "config": {"autoscaler": {"stable-window": "30s", "enable-scale-to-zero": false}, "ports": {"range": "30000-30999"}},
        "stats": {"tlsSecret": "stat-tls", "activatorTlsSecret": "activator-tls"}, "userRoles": false,
        "monitoring": {"podMonitors": true, "rules": true, "board": true, "labels": {"release": "prometheus"}},
    });
    let all = by_name(render("planes", &values).await?);
    let variable = |plane: &str, name: &str| -> anyhow::Result<Value> {
        let env = &all[&format!("Deployment planes/{plane}")]["spec"]["template"]["spec"]["containers"][0]["env"];
        let found: Vec<_> = env.as_array().into_iter().flatten().filter(|entry| entry["name"] == name).collect();
        ensure!(found.len() <= 1, "{plane}: {name} twice");
        Ok(found.first().map_or(Value::Null, |entry| entry["value"].clone()))
    };
    let (activator, pod) = ("Deployment planes/activator", "/spec/template/spec");
    let hpa = "HorizontalPodAutoscaler planes/activator";
    let labels = json!({"app": "activator", "app.kubernetes.io/name": "zeroscale"});
    let rows = [
        (activator, format!("{pod}/containers/0/image"), json!("r.example.com/z/activator:9")),
        (activator, format!("{pod}/containers/0/imagePullPolicy"), json!("Always")),
        (activator, format!("{pod}/imagePullSecrets"), json!([{"name": "s"}])),
        (activator, format!("{pod}/containers/0/resources/limits/memory"), json!("1Gi")),
        (activator, format!("{pod}/containers/0/resources/requests/memory"), json!("64Mi")),
        (activator, format!("{pod}/nodeSelector"), json!({"a": "b"})),
        (activator, format!("{pod}/volumes/1/secret/items/0/key"), json!("ca.crt")),
        (activator, format!("{pod}/volumes/2/secret"), json!({"secretName": "activator-tls"})),
        (activator, format!("{pod}/containers/0/volumeMounts/2/name"), json!("activator-tls")),
        ("Deployment planes/autoscaler", "/spec/replicas".into(), json!(3)),
        ("Deployment planes/autoscaler", "/spec/template/metadata/annotations".into(), json!({"x": "y"})),
        (hpa, "/spec/minReplicas".into(), json!(3)),
        (hpa, "/spec/maxReplicas".into(), json!(5)),
        (hpa, "/spec/metrics/0/resource/target/averageUtilization".into(), json!(80)),
        ("ConfigMap planes/config-autoscaler", "/data/stable-window".into(), json!("30s")),
        ("ConfigMap planes/config-autoscaler", "/data/enable-scale-to-zero".into(), json!("false")),
        ("NetworkPolicy planes/activator", "/spec/ingress/0/ports/2/port".into(), json!(30000)),
        ("NetworkPolicy planes/activator", "/spec/ingress/0/ports/2/endPort".into(), json!(30999)),
        ("PodMonitor planes/zeroscale-activator", "/spec/selector/matchLabels".into(), labels),
        ("PodMonitor planes/zeroscale-autoscaler", "/metadata/labels/release".into(), json!("prometheus")),
        ("PrometheusRule planes/zeroscale", "/metadata/labels/release".into(), json!("prometheus")),
        ("ConfigMap planes/zeroscale-board", "/metadata/labels/release".into(), json!("prometheus")),
        ("RoleBinding stage/zeroscale-autoscaler", "/subjects/0/namespace".into(), json!("planes")),
        ("Role planes/zeroscale-activator", "/rules/0/verbs/0".into(), json!("list")),
    ];
    assert_fields(&all, rows);
    let folder = "/var/run/secrets/zeroscale.dev/stat-tls";
    for (plane, name, expected) in [
        ("activator", "ZEROSCALE_NAMESPACES", json!("shop,stage")),
        ("activator", "ZEROSCALE_TRUSTED_PROXIES", json!("10.0.0.0/8")),
        ("activator", "ZEROSCALE_MEMORY_LIMIT", json!("1000000000")),
        ("activator", "ZEROSCALE_STAT_TLS_KEY", json!("/var/run/secrets/zeroscale.dev/activator-tls/tls.key")),
        ("autoscaler", "ZEROSCALE_STAT_TLS_KEY", json!(format!("{folder}/tls.key"))),
        ("autoscaler", "ZEROSCALE_STAT_TLS_CA_FILE", json!(format!("{folder}/ca.crt"))),
        ("autoscaler", "ZEROSCALE_STAT_AUDIENCE", Value::Null),
        ("activator", "ZEROSCALE_STAT_AUDIENCE", Value::Null),
        ("activator", "ZEROSCALE_STAT_TOKEN_FILE", Value::Null),
    ] {
        assert_eq!(variable(plane, name)?, expected, "{plane}: {name}");
    }
    ensure!(!all.keys().any(|name| name.starts_with("ClusterRole")), "{:?}", all.keys());
    // It selects only its own namespace.
    let monitor = &all["PodMonitor planes/zeroscale-activator"]["spec"];
    ensure!(monitor.get("namespaceSelector").is_none(), "{monitor}");
    let without = render("planes", &json!({"policies": false, "stats": {"tlsSecret": "stat-tls"}})).await?;
    ensure!(!without.iter().any(|object| object["kind"] == "NetworkPolicy"));
    let ports = without.iter().find(|object| object["metadata"]["name"] == "config-ports").context("config-ports")?;
    assert_eq!(ports["data"]["guarded"], "off", "no policy closes guarded numbers");
    let activator = by_name(without).remove(activator).context("an activator")?.to_string();
    ensure!(activator.contains("stat-tls/ca.crt") && !activator.contains("_TLS_KEY"), "{activator}");
    Ok(())
}

/// Goal: an operator's additions to a plane are merged with the existing fields, and disabled objects are absent.
#[tokio::test]
async fn an_operators_additions_are_merged() -> anyhow::Result<()> {
    let values = json!({
        "labels": {"team": "a"}, "annotations": {"owner": "b"},
        "activator": {
            "autoscaling": {"enabled": false}, "replicas": 4, "podDisruptionBudget": {"enabled": false},
            "extraEnv": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "extraVolumes": [{"name": "x", "emptyDir": {}}], "extraVolumeMounts": [{"name": "x", "mountPath": "/x"}],
            "labels": {"l": "1"}, "annotations": {"a": "1"}, "podLabels": {"p": "1", "app": "other"},
            "podAnnotations": {"q": "1"}, "updateStrategy": {"type": "Recreate"}, "priorityClassName": "high",
        },
        "autoscaler": {"podDisruptionBudget": {"maxUnavailable": "50%"}},
        "dashboard": {
            "enabled": true, "tokenSecret": "t",
            "ingress": {"enabled": true, "host": "z.example.com", "tlsSecret": "c", "className": "nginx"},
        },
        "monitoring": {"rules": true, "runbooks": "https://docs.example.com/alerts"},
    });
    let all = by_name(render("planes", &values).await?);
    let (activator, autoscaler, pod) =
        ("Deployment planes/activator", "Deployment planes/autoscaler", "/spec/template");
    let runbook = json!("https://docs.example.com/alerts#zeroscaleactivatormissing");
    let rows = [
        (activator, "/spec/replicas".to_owned(), json!(4)),
        (activator, "/spec/strategy".to_owned(), json!({"type": "Recreate"})),
        (activator, "/metadata/labels/l".to_owned(), json!("1")),
        (activator, "/metadata/labels/team".to_owned(), json!("a")),
        (activator, "/metadata/annotations".to_owned(), json!({"a": "1", "owner": "b"})),
        (activator, format!("{pod}/metadata/labels/app"), json!("activator")),
        (activator, format!("{pod}/metadata/labels/p"), json!("1")),
        (activator, format!("{pod}/metadata/annotations"), json!({"q": "1"})),
        (activator, format!("{pod}/spec/priorityClassName"), json!("high")),
        (activator, format!("{pod}/spec/volumes/0/name"), json!("stats")),
        (activator, format!("{pod}/spec/volumes/1/name"), json!("x")),
        (activator, format!("{pod}/spec/containers/0/volumeMounts/1/mountPath"), json!("/x")),
        (autoscaler, format!("{pod}/spec/volumes/1/secret/secretName"), json!("t")),
        ("PodDisruptionBudget planes/autoscaler", "/spec/maxUnavailable".to_owned(), json!("50%")),
        ("NetworkPolicy planes/autoscaler", "/spec/ingress/2/ports/0/port".to_owned(), json!(8090)),
        ("Service planes/zeroscale-dashboard", "/spec/ports/0/targetPort".to_owned(), json!("dashboard")),
        ("Ingress planes/zeroscale-dashboard", "/spec/tls/0/secretName".to_owned(), json!("c")),
        ("PrometheusRule planes/zeroscale", "/spec/groups/0/rules/0/annotations/runbook_url".to_owned(), runbook),
    ];
    assert_fields(&all, rows);
    let env = all[activator].pointer("/spec/template/spec/containers/0/env").context("env")?.to_string();
    ensure!(env.contains(r#"{"name":"A","valueFrom":"#) && env.contains("POD_NAME"), "{env}");
    let env = all[autoscaler].pointer("/spec/template/spec/containers/0/env").context("env")?.to_string();
    ensure!(env.contains("0.0.0.0:8090") && env.contains("zeroscale.dev/dashboard/token"), "{env}");
    ensure!(!all.contains_key("HorizontalPodAutoscaler planes/activator"), "it is disabled");
    ensure!(!all.contains_key("PodDisruptionBudget planes/activator"), "it is disabled");
    Ok(())
}

/// Goal: `helm test` and `helm uninstall` run the autoscaler's own program under the release's own account, with
/// existing commands and sufficient permissions in the namespaces of the release.
#[tokio::test]
async fn hooks_run_the_autoscalers_program() -> anyhow::Result<()> {
    let values =
        |restore: bool| json!({"images": {"registry": "r"}, "namespaces": ["shop"], "uninstall": {"restore": restore}});
    let all = by_name(render_with(&[], "planes", &values(true)).await?);
    for (name, at, hook, command) in [
        ("Pod planes/zeroscale-test", "", "test", "verify"),
        ("Job planes/zeroscale-restore", "/spec/template", "pre-delete", "end"),
    ] {
        let object = all.get(name).with_context(|| name.to_owned())?;
        let spec = object.pointer(&format!("{at}/spec")).context("a pod")?;
        assert_eq!(object["metadata"]["annotations"]["helm.sh/hook"], hook, "{name}");
        assert_eq!(spec["serviceAccountName"], "autoscaler", "{name}");
        let autoscaler = &all["Deployment planes/autoscaler"]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(spec["containers"][0]["image"], autoscaler["image"]);
        assert_eq!(spec["containers"][0]["args"], json!([command]), "{name}");
        assert_eq!(spec["containers"][0]["env"][1]["value"], "shop", "{name}");
    }
    assert_eq!(all["RoleBinding shop/zeroscale-restore"]["subjects"][0]["namespace"], "planes");
    ensure!(!all.contains_key("ClusterRole /zeroscale-restore"), "a release of some namespaces has a wide right");
    let without = by_name(render_with(&[], "planes", &values(false)).await?);
    ensure!(!without.contains_key("Job planes/zeroscale-restore"), "it is disabled");
    Ok(())
}

/// Goal: helm's own lint reports nothing, and the error about an unknown or invalid value names it.
#[tokio::test]
async fn invalid_values_are_rejected_by_name() -> anyhow::Result<()> {
    let registry = "images.registry=zeroscale";
    run(Command::new(tool("helm")?).args(["lint", "--strict", "--set", registry]).arg(chart())).await?;
    for mode in ["standalone", "knative"] {
        let error = render_with(&[], "x", &json!({"mode": mode})).await.err().context("no registry")?;
        ensure!(format!("{error:#}").contains("images.registry: must say where the images are"), "{error:#}");
    }
    let ports = |field: &str, range: &str| json!({"config": {"ports": {field: range}}});
    let exposed = json!({"enabled": true, "tokenSecret": "t", "ingress": {"enabled": true}});
    let scaled = json!({"autoscaling": {"maxReplicas": 9}});
    for (bad, expected) in [
        (json!({"activators": {}}), "'activators'"),
        (json!({"mode": "native"}), "/mode"),
        (json!({"namespaces": ["Shop"]}), "/namespaces/0"),
        (ports("range", "1-2"), "/config/ports/range"),
        (ports("guarded", "20000-20009"), "20000-20009 must share no number with 20000-29999"),
        (ports("range", "19999-20009"), "config.ports.guarded: 10000-19999 must share no number"),
        (json!({"monitoring": {"rules": "yes"}}), "/monitoring/rules"),
        (json!({"namespaces": ["shop"], "hpa": {"install": true}}), "hpa.install"),
        (json!({"namespaces": ["shop"], "rights": {"openshift": true}}), "rights.openshift"),
        (json!({"stats": {"activatorTlsSecret": "a"}}), "stats.tlsSecret"),
        (json!({"dashboard": {"enabled": true}}), "dashboard.tokenSecret"),
        (json!({"dashboard": exposed}), "dashboard.ingress.host"),
        // Values without an effect in place of Knative's components.
        (json!({"mode": "knative", "namespaces": ["shop"]}), "namespaces:"),
        (json!({"mode": "knative", "activator": scaled}), "activator.autoscaling.maxReplicas:"),
        (json!({"mode": "knative", "autoscaler": {"replicas": 3}}), "autoscaler.replicas:"),
        (json!({"mode": "knative", "hpa": {"install": true, "replicas": 1}}), "hpa.replicas:"),
        (json!({"mode": "knative", "config": {"leader-election": {"buckets": 9}}}), "config.leader-election:"),
        (json!({"mode": "knative", "config": {"ports": {"range": "30000-30999"}}}), "config.ports:"),
        (json!({"mode": "knative", "crds": {"install": false}}), "crds.install:"),
        (json!({"mode": "knative", "stats": {"tlsSecret": "a"}}), "stats.tlsSecret:"),
        (json!({"mode": "knative", "policies": false}), "policies:"),
        (json!({"mode": "knative", "dashboard": {"enabled": true}}), "dashboard.enabled:"),
        (json!({"mode": "knative", "activator": {"replicas": 3}}), "activator.replicas:"),
        (json!({"mode": "knative", "userRoles": false}), "userRoles:"),
        (json!({"mode": "knative", "rights": {"openshift": true}}), "rights.openshift:"),
    ] {
        let error = format!("{:#}", render("x", &bad).await.err().context("taken")?);
        ensure!(error.contains(expected), "{bad}: {error}");
    }
    Ok(())
}

/// Goal: the chart's notes on uninstalling affect the workloads of this release and of no other.
#[tokio::test]
async fn uninstall_notes_cover_only_this_releases_workloads() -> anyhow::Result<()> {
    let notes = async |set: &str| -> anyhow::Result<Vec<String>> {
        let mut helm = Command::new(tool("helm")?);
        helm.args(["install", "zeroscale", "--namespace", "planes", "--dry-run=client", "--set", set]);
        helm.args(["--set", "images.registry=zeroscale"]).arg(chart());
        let output = run(&mut helm).await?;
        let notes = output.split("\nNOTES:\n").nth(1).context("notes")?;
        let of_workloads =
            |line: &&str| line.contains("deployments,statefulsets") || line.contains("delete zeroscalers");
        Ok(notes.lines().filter(of_workloads).map(|line| line.trim().to_owned()).collect())
    };
    let commands = |scope: &str| {
        let label = "zeroscale.dev/enabled";
        let unlabel = format!("kubectl label deployments,statefulsets {scope} --selector {label}=true {label}-");
        [unlabel, format!("kubectl delete zeroscalers --all {scope}")]
    };
    assert_eq!(notes("mode=standalone").await?, commands("--all-namespaces"));
    let expected = [commands("--namespace shop"), commands("--namespace stage")].concat();
    assert_eq!(notes("namespaces={shop,stage}").await?, expected);
    Ok(())
}
