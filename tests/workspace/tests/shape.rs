//! Tests of the dependencies and the layout of the workspace: allowed and required dependencies, cores without I/O, top
//! level, and headers of files.

use cargo_metadata::{DependencyKind, Metadata, Package};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use workspace_tests::{metadata, read, root, rust_files};

/// Returns the metadata of the workspace and its dependencies.
fn all_metadata() -> Metadata {
    metadata().exec().expect("cargo metadata")
}

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
    let metadata = all_metadata();
    let ours: BTreeSet<String> = metadata.workspace_packages().iter().map(|p| p.name.to_string()).collect();
    for (name, allowed) in allowed {
        let used: BTreeSet<String> = dependencies(package(&metadata, name)).intersection(&ours).cloned().collect();
        let surplus: Vec<_> = used.iter().filter(|d| !allowed.split(' ').any(|one| one == d.as_str())).collect();
        assert!(surplus.is_empty(), "{name} must not depend on {surplus:?}");
    }
}

/// Goal: cores perform no I/O and parse no YAML. The activator's network layer does not use Kubernetes or metrics.
#[test]
fn crates_do_not_depend_on_banned_packages() {
    let io = "tokio hyper hyper-util kube reqwest socket2 mio async-std smol serde_yaml_ng";
    let metadata = all_metadata();
    for (name, banned) in [
        ("common", io),
        ("activator-core", io),
        ("autoscaler-core", io),
        ("hpa-core", io),
        ("activator-net", "kube k8s-openapi common-api prometheus-client opentelemetry"),
    ] {
        let used = dependencies(package(&metadata, name));
        let surplus: Vec<_> = banned.split(' ').filter(|banned| used.contains(*banned)).collect();
        assert!(surplus.is_empty(), "{name} must not depend on {surplus:?}");
    }
}

/// Goal: the packages that the project is built on are used in their intended crates.
#[test]
fn intended_packages_are_used() {
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
    let metadata = all_metadata();
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
    let metadata = all_metadata();
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
fn a_crate_enables_the_features_of_tokio_that_it_uses() {
    let is_tests = |part: &OsStr| part.to_string_lossy().trim_end_matches(".rs").ends_with("tests");
    for package in all_metadata().workspace_packages() {
        let tokio = package.dependencies.iter().find(|d| d.name == "tokio" && d.kind == DependencyKind::Normal);
        let Some(tokio) = tokio else { continue };
        let source = package.manifest_path.with_file_name("src");
        for file in rust_files(package) {
            let Ok(within) = file.strip_prefix(&source) else { continue };
            if within.iter().any(is_tests) {
                continue;
            }
            let text = read(&file);
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for part in ["fs", "net", "process", "signal"] {
                let is_enabled = tokio.features.iter().any(|feature| feature == part);
                let is_used = code.contains(&format!("tokio::{part}"));
                assert!(is_enabled || !is_used, "{}: {} uses tokio::{part}", package.name, within.display());
            }
        }
    }
}

/// Goal: versions and lints are defined in one place.
#[test]
fn members_use_versions_and_lints_of_the_workspace() {
    for package in all_metadata().workspace_packages() {
        let manifest = read(package.manifest_path.as_std_path());
        assert!(manifest.contains("[lints]\nworkspace = true"), "{} must use the workspace's lints", package.name);
        for line in manifest.lines() {
            assert!(!line.contains("version = \""), "{}: {line:?} belongs to the root manifest", package.name);
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

/// Goal: every source file starts with a header.
#[test]
fn every_source_file_has_a_header() {
    for package in all_metadata().workspace_packages() {
        for file in rust_files(package) {
            assert!(read(&file).starts_with("//!"), "{} has no module header", file.display());
        }
    }
}
