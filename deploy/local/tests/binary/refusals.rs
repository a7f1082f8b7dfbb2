//! Invalid input is rejected with its position, before anything starts.

use crate::process::refused;
use crate::up::{deployment, scaler, write};

#[tokio::test]
async fn a_bad_manifest_is_refused_by_file_document_and_field() {
    let folder = tempfile::tempdir().expect("a folder");
    // A taken port is not tried while a manifest is invalid.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let ingress = taken.local_addr().expect("an address").to_string();
    let manifest = deployment("a", 1) + &scaler("b") + "  scale: {window: 1s}\n";
    let file = write(&folder, "manifest.yaml", &manifest).display().to_string();
    let errors = refused(&["up", &file, "--ingress", &ingress]).await;
    assert!(errors.contains(&format!("{file}, document 2")) && errors.contains("spec.scale.window"), "{errors}");
}

#[tokio::test]
async fn what_the_api_server_refuses_is_named_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = deployment("a", 1).replace("replicas: 1", "replicas: many");
    let file = write(&folder, "a.yaml", &manifest).display().to_string();
    let errors = refused(&["up", &file, "--ingress", "127.0.0.1:0"]).await;
    let expected = format!("{file}, document 1: Deployment a: ");
    assert!(errors.contains(&expected) && errors.contains("spec.replicas: "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "that is all there is to say: {errors}");
}

/// Goal: an unknown kind, version or group is reported with the available alternatives, in readable words.
#[tokio::test]
async fn what_is_not_served_is_named_with_what_is() {
    let folder = tempfile::tempdir().expect("a folder");
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
        let file = write(&folder, "a.yaml", &object(version, kind)).display().to_string();
        let errors = refused(&["up", &file, "--ingress", "127.0.0.1:0"]).await;
        let says = format!("{file}, document 1: {kind} a: the cluster does not serve kind {kind} in {version}; ");
        assert!(errors.contains(&says) && errors.contains(expected), "{errors}");
        assert!(!errors.contains(['{', '\u{1b}']), "words, not data: {errors}");
    }
}

#[tokio::test]
async fn a_taken_port_is_an_error_that_names_the_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for (flag, args) in [
        ("--ingress", vec!["up", "--ingress", &address]),
        ("--api", vec!["up", "--ingress", "127.0.0.1:0", "--api", &address]),
    ] {
        let errors = refused(&args).await;
        for part in [flag, address.as_str(), "in use", "choose another"] {
            assert!(errors.contains(part), "{part:?} should be in {errors:?}");
        }
    }
}

#[tokio::test]
async fn a_kubeconfig_of_another_cluster_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "apiVersion: v1\nkind: Config\nclusters: [{name: work, cluster: {server: 'https://work'}}]\n";
    let file = write(&folder, "config", text);
    let path = file.display().to_string();
    for args in [vec!["up", "--ingress", "127.0.0.1:0", "--kubeconfig", &path], vec!["api", "--kubeconfig", &path]] {
        let errors = refused(&args).await;
        let expected = format!("--kubeconfig {path} exists and does not belong to an embedded cluster");
        assert!(errors.contains(&expected), "{errors}");
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), text);
    }
}

#[tokio::test]
async fn a_bad_config_autoscaler_is_refused_by_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = write(&folder, "settings.yaml", "stable-window: 1s\n").display().to_string();
    let errors = refused(&["up", "--ingress", "127.0.0.1:0", "--config-autoscaler", &settings]).await;
    assert!(errors.contains(&settings) && errors.contains("stable-window"), "{errors}");
}
