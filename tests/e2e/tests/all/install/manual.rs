//! Tests the manual: its manifests are accepted by an API server, and its commands work as described.

use crate::install::chart::{run, tool};
use crate::install::manifests::apply;
use crate::install::releases::ToolCluster;
use anyhow::{Context, ensure};
use e2e::{TestEnv, Workload, bare};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use local::up::UpOptions;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Kinds of other projects, which the embedded API server does not have.
const OTHERS: [&str; 5] = ["HTTPRoute", "Ingress", "KnativeServing", "Kustomization", "Application"];

/// Tests of each command of the manual. The first entry that a command contains counts; a command without an entry
/// fails.
const COMMANDS: &[(&str, &str)] = &[
    ("cargo run --profile quick -p local -- up", "tests of `local`, in another profile"),
    (".ci/test", "`.ci/run`"),
    ("curl http", "tests of `local`; the test below by a client of its own"),
    ("kubectl label deployment hello", "below"),
    ("kubectl wait --for=create zs/hello", "below"),
    ("kubectl wait --for=condition=Ready zs/hello", "below"),
    ("kubectl get zs", "below"),
    ("kubectl --kubeconfig", "below"),
    ("helm install", "releases.rs"),
    ("helm template", "chart.rs"),
    ("kubectl kustomize", "manifests.rs, for every kustomization"),
    ("kubectl apply --server-side --force-conflicts -k .", "manifests.rs, with what its file names"),
    ("cargo build --profile dist -p cli", "`.ci/release`, in the profile that is released"),
    ("kubectl-zeroscale completions", "tests of `cli`"),
    ("kubectl-zeroscale man", "tests of `cli`"),
    ("kubectl zeroscale why", "tests of `cli`"),
    ("cargo run -p sim -- many", "tests of `sim`"),
];

fn manual() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/docs")
}

/// Returns each page of the manual, and the README.
fn pages() -> anyhow::Result<Vec<(String, String)>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(manual())?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.push(manual().join("../../README.md"));
    let read = |path: PathBuf| Ok((path.display().to_string(), std::fs::read_to_string(&path)?));
    files.into_iter().map(read).collect()
}

/// Returns the fenced blocks of a language, without their indentation.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if line.trim() == format!("```{language}") {
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            found.push(block.map(|line| line.get(indent..).unwrap_or_default()).collect::<Vec<_>>().join("\n"));
        }
    }
    found
}

#[tokio::test]
async fn every_manifest_in_the_manual_passes_strict_validation() -> anyhow::Result<()> {
    let (_server, client) = bare::start("127.206.128.0/17").await?;
    bare::define_resources(&client).await?;
    bare::create_namespace(&client, "argocd").await?;
    let mut accepted = 0;
    for (page, text) in pages()? {
        for block in blocks(&text, "yaml") {
            for document in serde_yaml_ng::Deserializer::from_str(&block) {
                let mut object = Value::deserialize(document).with_context(|| format!("{page}: {block}"))?;
                let Some(kind) = object["kind"].as_str() else { continue }; // A fragment of an object.
                if OTHERS.contains(&kind) {
                    continue;
                }
                if object["metadata"].get("namespace").is_none() {
                    object["metadata"]["namespace"] = json!("default");
                }
                apply(&client, &object, true).await.with_context(|| format!("{page}: {block}"))?;
                accepted += 1;
            }
        }
    }
    ensure!(accepted >= 5, "{accepted} manifests were found");
    Ok(())
}

#[test]
fn every_command_in_the_manual_is_tested() -> anyhow::Result<()> {
    let mut found = 0;
    for (page, text) in pages()? {
        let blocks = blocks(&text, "console");
        for command in blocks.iter().flat_map(|block| block.lines()).filter_map(|line| line.strip_prefix("$ ")) {
            ensure!(COMMANDS.iter().any(|(part, _)| command.contains(part)), "{page}: `{command}` has no test");
            found += 1;
        }
    }
    ensure!(found >= 10, "{found} commands were found");
    Ok(())
}

/// Goal: kubectl accepts the manifests and explains the fields of the manual, on the embedded API server. Method: the
/// sample, applied twice and once with an unknown field.
#[tokio::test]
async fn kubectl_applies_and_explains() -> anyhow::Result<()> {
    let cluster = ToolCluster::start("127.208.128.0/17").await?;
    bare::define_resources(&cluster.client).await?;
    let sample = std::fs::read_to_string(manual().join("../samples/hello.yaml"))?;
    let wrong = cluster.folder.path().join("wrong.yaml");
    std::fs::write(&wrong, sample.replace("    max: 20", "    most: 20"))?;
    let kubectl = async |command: &str| cluster.run("kubectl", &command.split(' ').collect::<Vec<_>>()).await;
    kubectl("apply -f ../samples/hello.yaml").await?;
    let again = kubectl("apply -f ../samples/hello.yaml").await?;
    ensure!(again.lines().count() == 3 && again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    let refused = kubectl(&format!("apply -f {}", wrong.display())).await.err().context("accepted")?;
    ensure!(format!("{refused:#}").contains("unknown field \"spec.scale.most\""), "{refused:#}");

    let fields = kubectl("explain zeroscaler.spec --recursive").await?;
    for field in ["  target\t<Object> -required-", "    max\t<integer>", "      concurrency\t<"] {
        ensure!(fields.contains(field), "{field} is missing: {fields}");
    }
    ensure!(kubectl("explain deployment.spec.template").await?.contains("PodTemplateSpec"));
    Ok(())
}

/// Goal: the ten-minute guide works with its own commands. A label scales a Deployment to zero with defaults, `wait`
/// returns, the first request wakes it, and without the label the former state is restored.
#[tokio::test(flavor = "multi_thread")]
async fn the_ten_minute_guide_works_as_written() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(manual().join("start.md"))?;
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let hello = Workload::new("hello").replicas(1);
    env.create::<Deployment>(hello.deployment(&e2e::space::program()?)).await?;
    let before = env.create::<Service>(hello.service()).await?;
    let kubectl = async |command: &str| -> anyhow::Result<String> {
        ensure!(page.contains(&format!("$ {command}")), "the manual does not say {command}");
        let mut kubectl = Command::new(tool("kubectl")?);
        kubectl.arg("--kubeconfig").arg(&env.cluster.kubeconfig).args(["--namespace", &env.namespace]);
        run(kubectl.args(command.split(' ').skip(1))).await
    };
    kubectl("kubectl label deployment hello zeroscale.dev/enabled=true").await?;
    kubectl("kubectl wait --for=create zs/hello").await?;
    kubectl("kubectl wait --for=condition=Ready zs/hello").await?;
    env.load(e2e::Entry::Service, "hello").get_ok("/").await?;
    kubectl("kubectl label deployment hello zeroscale.dev/enabled-").await?;
    env.until_gone("hello").await?;
    let after = env.api::<Service>().get("hello").await?;
    ensure!(before.spec.map(|spec| spec.selector) == after.spec.map(|spec| spec.selector), "the Service is restored");
    env.end().await
}
