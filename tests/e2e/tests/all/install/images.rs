//! Images that are built without a container engine: complete and reproducible.

use crate::install::chart::run;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tokio::process::Command;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/images").join(name)
}

/// Goal: an archive is an OCI image whose parts match their digests, and a second build is equal byte for byte.
#[tokio::test]
async fn an_archive_is_complete_and_reproducible() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (first, second) = (folder.path().join("1.tar"), folder.path().join("2.tar"));
    let binary = "/bin/true"; // Any program; a small one is compressed quickly.
    for archive in [&first, &second] {
        let mut build = Command::new(script("build"));
        build.env("SOURCE_DATE_EPOCH", "10").env("REVISION", "abc");
        run(build.arg(binary).arg(archive)).await?;
    }
    ensure!(std::fs::read(&first)? == std::fs::read(&second)?, "the archives differ");

    let unpacked = folder.path().join("image");
    std::fs::create_dir(&unpacked)?;
    run(Command::new("tar").arg("-xf").arg(&first).arg("-C").arg(&unpacked)).await?;
    let sums = "cd blobs/sha256 && for f in *; do echo \"$f  $f\"; done | sha256sum -c";
    run(Command::new("sh").args(["-c", sums]).current_dir(&unpacked)).await?;
    let json = |path: PathBuf| -> anyhow::Result<Value> { Ok(serde_json::from_slice(&std::fs::read(path)?)?) };
    let blob = |descriptor: &Value| -> anyhow::Result<PathBuf> {
        let digest =
            descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:")).context("digest")?;
        let path = unpacked.join("blobs/sha256").join(digest);
        ensure!(std::fs::metadata(&path)?.len() == descriptor["size"].as_u64().context("size")?, "size of {digest}");
        Ok(path)
    };
    let manifest = json(blob(&json(unpacked.join("index.json"))?["manifests"][0])?)?;
    let config = json(blob(&manifest["config"])?)?;
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    ensure!(config["architecture"] == architecture, "{config}");
    ensure!(config["created"] == "1970-01-01T00:00:10Z", "{config}");
    ensure!(config["config"]["Labels"]["org.opencontainers.image.revision"] == "abc", "{config}");
    ensure!(config["config"]["User"] == "65532:65532" && config["config"]["Entrypoint"][0] == "/true");
    let layer = blob(&manifest["layers"][0])?;
    let listed = run(Command::new("tar").arg("-tzf").arg(&layer)).await?;
    ensure!(listed.contains("./true\n") && listed.contains("./etc/nsswitch.conf\n"), "{listed}");
    let sum = run(Command::new("sh").arg("-c").arg(format!("gzip -dc {} | sha256sum", layer.display()))).await?;
    let sum = sum.split(' ').next().unwrap_or_default();
    ensure!(config["rootfs"]["diff_ids"][0] == format!("sha256:{sum}"));
    Ok(())
}

/// Goal: a bill of materials lists the linked crates with licence and checksum, none that only tests use, and is
/// reproducible.
#[tokio::test]
async fn a_bill_of_materials_lists_exactly_the_linked_crates() -> anyhow::Result<()> {
    let sbom = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/sbom");
    let first = run(Command::new(&sbom).arg("autoscaler")).await?;
    ensure!(first == run(Command::new(&sbom).arg("autoscaler")).await?, "the bills differ");
    let document: Value = serde_json::from_str(&first)?;
    let all = document["components"].as_array().context("components")?;
    let find = |name: &str| all.iter().find(|component| component["name"] == name);
    for linked in ["autoscaler-core", "hpa-core", "tokio", "kube", "rustls"] {
        ensure!(find(linked).is_some(), "no {linked}");
    }
    for other in ["proptest", "tempfile", "serde_derive", "activator"] {
        ensure!(find(other).is_none(), "{other} is not linked in");
    }
    let tokio = find("tokio").context("tokio")?;
    let sum = tokio["hashes"][0]["content"].as_str().context("a checksum")?;
    ensure!(sum.len() == 64 && tokio["licenses"][0] != Value::Null, "{tokio}");
    Ok(())
}
