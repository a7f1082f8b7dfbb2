//! Invalid input is rejected with its position, before anything starts.

use crate::process::refused;
use crate::up::{deployment, scaler, write};

const FREE_PORT: &str = "127.0.0.1:0";

/// Runs `local up` with a manifest that it must reject. Returns the manifest's file and the errors.
async fn refused_manifest(manifest: &str, ingress: &str) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(&folder, "manifest.yaml", manifest).display().to_string();
    let errors = refused(&["up", &file, "--ingress", ingress]).await;
    (file, errors)
}

/// Goal: an invalid manifest is rejected before its port is tried. Method: a port that is in use.
#[tokio::test]
async fn an_invalid_manifest_is_rejected_by_file_document_and_field() {
    let taken = std::net::TcpListener::bind(FREE_PORT).expect("a port");
    let ingress = taken.local_addr().expect("an address").to_string();
    let manifest = deployment("a", 1) + &scaler("b") + "  scale: {window: 1s}\n";
    let (file, errors) = refused_manifest(&manifest, &ingress).await;
    assert!(errors.contains(&format!("{file}, document 2")) && errors.contains("spec.scale.window"), "{errors}");
}

#[tokio::test]
async fn a_rejection_by_the_api_server_names_document_and_field() {
    let manifest = deployment("a", 1).replace("replicas: 1", "replicas: many");
    let (file, errors) = refused_manifest(&manifest, FREE_PORT).await;
    let expected = format!("{file}, document 1: Deployment a: ");
    assert!(errors.contains(&expected) && errors.contains("spec.replicas: "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "one line is enough: {errors}");
}

/// Goal: an unknown kind, version or group is reported with the available alternatives, in readable words.
#[tokio::test]
async fn a_kind_that_is_not_served_is_rejected_with_the_alternatives() {
    let object = |version: &str, kind: &str| {
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{target: {{name: a}}}}\n")
    };
    for (version, kind, expected) in [
        ("zeroscale.dev/v1alpha1", "ZeroScalr", "the kinds in zeroscale.dev/v1alpha1 are ZeroScaler"),
        ("zeroscale.dev/v1", "ZeroScaler", "write apiVersion: zeroscale.dev/v1alpha1"),
        ("apps/v1beta1", "Deployment", "write apiVersion: apps/v1"),
        ("v2", "Pod", "write apiVersion: v1"),
        ("example.com/v1", "Shop", "it serves no group example.com"),
    ] {
        let (file, errors) = refused_manifest(&object(version, kind), FREE_PORT).await;
        let start = format!("{file}, document 1: {kind} a: the cluster does not serve kind {kind} in {version}; ");
        assert!(errors.contains(&start) && errors.contains(expected), "{errors}");
        assert!(!errors.contains(['{', '\u{1b}']), "words, not data: {errors}");
    }
}

#[tokio::test]
async fn a_taken_port_is_an_error_that_names_the_flag() {
    let taken = std::net::TcpListener::bind(FREE_PORT).expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for (flag, args) in [
        ("--ingress", vec!["up", "--ingress", &address]),
        ("--api", vec!["up", "--ingress", FREE_PORT, "--api", &address]),
    ] {
        let errors = refused(&args).await;
        for part in [flag, address.as_str(), "in use", "choose another"] {
            assert!(errors.contains(part), "{part:?} should be in {errors:?}");
        }
    }
}

#[tokio::test]
async fn a_kubeconfig_of_another_cluster_is_not_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "apiVersion: v1\nkind: Config\nclusters: [{name: work, cluster: {server: 'https://work'}}]\n";
    let file = write(&folder, "config", text);
    let path = file.display().to_string();
    for args in [vec!["up", "--ingress", FREE_PORT, "--kubeconfig", &path], vec!["api", "--kubeconfig", &path]] {
        let errors = refused(&args).await;
        let expected = format!("--kubeconfig {path} exists and does not belong to an embedded cluster");
        assert!(errors.contains(&expected), "{errors}");
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), text);
    }
}
