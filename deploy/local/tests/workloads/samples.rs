//! The Deployments of the sample manifests run unchanged.

use super::cluster::{Cluster, first_response};
use k8s_openapi::api::apps::v1::Deployment;
use serde::Deserialize;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_deployment_becomes_ready_and_responds() {
    let cluster = Cluster::start().await;
    let mut count = 0;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../samples");
    for file in std::fs::read_dir(folder).expect("the samples").map(|entry| entry.expect("an entry").path()) {
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("readable");
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let mut object = Value::deserialize(document).expect("valid YAML");
            if object["kind"] != "Deployment" {
                continue;
            }
            object["spec"]["replicas"] = json!(1);
            // Manifests expect the program next to the running binary, but tests run from another folder.
            object["spec"]["template"]["spec"]["containers"][0]["command"][0] = json!(env!("CARGO_BIN_EXE_local"));
            cluster.create::<Deployment>(object).await;
            count += 1;
        }
    }
    assert!(count >= 2, "found only {count} Deployments");
    for pod in cluster.until_pods_ready(count).await {
        let response = first_response(&pod).await;
        assert!(response.contains("200 OK"), "{response}");
    }
    cluster.stop().await;
}
