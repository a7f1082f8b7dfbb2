//! Tests of the workspace's shape: the allowed dependencies, and the purity of the cores.

use cargo_metadata::{DependencyKind, Metadata, Package};
use std::collections::BTreeSet;
use std::path::Path;
use workspace_tests::{metadata, read, root, rust_files};

fn package<'a>(metadata: &'a Metadata, name: &str) -> &'a Package {
    metadata.workspace_packages().into_iter().find(|p| p.name.as_str() == name).expect(name)
}

/// Returns the names of all dependencies of `package` outside its tests.
fn dependencies(package: &Package) -> BTreeSet<String> {
    package.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal).map(|d| d.name.clone()).collect()
}

/// Goal: dependencies point inward. Each crate of the workspace may use the listed ones and no other.
#[test]
fn dependencies_point_inward() {
    let allowed = [
        ("common", ""),
        ("common-api", "common"),
        ("common-runtime", "common common-api"),
        ("common-controller", "common common-api common-runtime"),
        ("activator-core", "common"),
        ("hpa-core", "common"),
        ("hpa", "common common-api common-controller common-runtime hpa-core"),
        ("autoscaler-core", "common hpa-core"),
        ("activator-net", "activator-core common common-runtime"),
        ("activator", "activator-core activator-net common common-api common-controller common-runtime"),
        ("autoscaler", "autoscaler-core common common-api common-controller common-runtime hpa hpa-core"),
        ("local", "activator autoscaler common common-api common-controller common-runtime hello hpa hpa-core"),
        ("cli", "autoscaler autoscaler-core common common-api"),
        ("hello", ""),
        ("bench", "activator activator-core autoscaler-core common common-api common-runtime e2e local"),
        ("sim", "activator-core autoscaler-core common hpa-core"),
        ("fuzz", ""),
        ("monitoring", "common-runtime"),
    ];
    let metadata = metadata().exec().expect("cargo metadata");
    let ours: BTreeSet<String> = metadata.workspace_packages().iter().map(|p| p.name.to_string()).collect();
    for (name, allowed) in allowed {
        let used: BTreeSet<String> = dependencies(package(&metadata, name)).intersection(&ours).cloned().collect();
        let surplus: Vec<_> = used.iter().filter(|d| !allowed.split(' ').any(|one| one == d.as_str())).collect();
        assert!(surplus.is_empty(), "{name} must not depend on {surplus:?}");
    }
}

/// Goal: cores perform no I/O. Packages that could perform it are not among their dependencies.
#[test]
fn cores_cannot_reach_io() {
    let metadata = metadata().exec().expect("cargo metadata");
    for core in ["common", "activator-core", "autoscaler-core", "hpa-core"] {
        let used = dependencies(package(&metadata, core));
        let io = ["tokio", "hyper", "hyper-util", "kube", "reqwest", "socket2", "mio", "async-std", "smol"];
        // YAML is parsed by the shells.
        for banned in io.into_iter().chain(["serde_yaml_ng"]) {
            assert!(!used.contains(banned), "{core} must stay pure, yet depends on {banned}");
        }
    }
}

/// Goal: the activator's network layer does not depend on Kubernetes or metrics.
#[test]
fn the_network_knows_no_cluster() {
    let metadata = metadata().exec().expect("cargo metadata");
    let used = dependencies(package(&metadata, "activator-net"));
    for banned in ["kube", "k8s-openapi", "common-api", "prometheus-client", "opentelemetry"] {
        assert!(!used.contains(banned), "activator-net depends on {banned}");
    }
}

/// Goal: the packages that the project is built on are used in their intended crates.
#[test]
fn the_given_packages_are_used() {
    let places: [(&str, &[&str]); 10] = [
        ("tokio", &["activator", "activator-net", "autoscaler", "common-runtime", "local"]),
        ("hyper", &["activator-net", "autoscaler", "common-runtime", "local"]),
        ("hyper-util", &["activator-net", "autoscaler", "common-runtime", "local"]),
        ("tokio-tungstenite", &["autoscaler", "common-runtime"]),
        ("kube", &["activator", "autoscaler", "common-api", "common-runtime", "local"]),
        ("k8s-openapi", &["activator", "autoscaler", "common-runtime", "local"]),
        ("dashmap", &["activator", "activator-net", "autoscaler"]),
        ("parking_lot", &["activator-core", "autoscaler", "local"]),
        ("tower", &["activator"]),
        ("tracing", &["activator", "activator-net", "autoscaler", "common-runtime", "local"]),
    ];
    let metadata = metadata().exec().expect("cargo metadata");
    for (dependency, users) in places {
        let path = format!("{}::", dependency.replace('-', "_"));
        for user in users {
            let package = package(&metadata, user);
            assert!(dependencies(package).contains(dependency), "{user} should list {dependency}");
            let used = rust_files(package).iter().any(|file| read(file).contains(&path));
            assert!(used, "{user} lists {dependency} without using it");
        }
    }
}

/// Goal: a crate uses every dependency that it lists, under the name of the library, which may differ from that of the
/// package.
#[test]
fn every_dependency_is_used() {
    let metadata = metadata().exec().expect("cargo metadata");
    let library = |name: &str| {
        let package = metadata.packages.iter().find(|package| package.name.as_str() == name);
        let target = package.and_then(|package| package.targets.iter().find(|t| t.is_lib() || t.is_proc_macro()));
        target.map_or_else(|| name.to_owned(), |target| target.name.clone()).replace('-', "_")
    };
    for package in metadata.workspace_packages() {
        let text: String = rust_files(package).iter().map(read).collect();
        let words: BTreeSet<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for dependency in &package.dependencies {
            let name = dependency.rename.clone().unwrap_or_else(|| library(&dependency.name));
            assert!(words.contains(name.as_str()), "{} lists {} and does not use it", package.name, dependency.name);
        }
    }
}

/// Goal: a crate built alone has the features of tokio that it uses. Builds of the whole workspace do not show this,
/// since features are unified.
#[test]
fn a_crate_asks_for_the_parts_of_tokio_that_it_uses() {
    let is_test =
        |file: &Path| file.iter().any(|part| part.to_string_lossy().trim_end_matches(".rs").ends_with("tests"));
    for package in metadata().exec().expect("cargo metadata").workspace_packages() {
        let tokio = package.dependencies.iter().find(|d| d.name == "tokio" && d.kind == DependencyKind::Normal);
        let Some(tokio) = tokio else { continue };
        let source = folder(package).join("src");
        for file in rust_files(package) {
            let Ok(within) = file.strip_prefix(&source) else { continue };
            if is_test(within) {
                continue;
            }
            let text = read(&file);
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for part in ["fs", "net", "process", "signal"] {
                let is_there = tokio.features.iter().any(|feature| feature == part);
                assert!(
                    is_there || !code.contains(&format!("tokio::{part}")),
                    "{}: {} uses tokio::{part}, and Cargo.toml does not ask tokio for it",
                    package.name,
                    within.display()
                );
            }
        }
    }
}

/// Goal: versions and lints are defined in one place.
#[test]
fn members_take_versions_and_lints_from_the_workspace() {
    for package in metadata().exec().expect("cargo metadata").workspace_packages() {
        let manifest = read(package.manifest_path.as_std_path());
        assert!(manifest.contains("[lints]\nworkspace = true"), "{} must take the workspace's lints", package.name);
        for line in manifest.lines() {
            assert!(!line.contains("version = \""), "{}: {line:?} belongs into the root manifest", package.name);
        }
    }
}

/// Goal: the top level contains only the entries in the README's map.
#[test]
fn the_top_level_is_tidy() {
    let expected = "Cargo.lock Cargo.toml LICENSE README.md activator autoscaler common deploy target tests";
    for entry in std::fs::read_dir(root()).expect("the top level") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let is_expected = name.starts_with('.') || expected.split(' ').any(|one| one == name);
        assert!(is_expected, "{name} has no place at the top level");
    }
}

/// Goal: every source file starts with a header that states its purpose.
#[test]
fn every_source_file_has_a_header() {
    for package in metadata().exec().expect("cargo metadata").workspace_packages() {
        for file in rust_files(package) {
            assert!(read(&file).starts_with("//!"), "{} has no module header", file.display());
        }
    }
}

fn folder(package: &Package) -> &Path {
    package.manifest_path.parent().expect("a manifest lies in a folder").as_std_path()
}
