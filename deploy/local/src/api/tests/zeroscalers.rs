//! ZeroScalers on this server: defaults, validation and output.

use std::collections::BTreeMap;

use common_api::zeroscaler::{SleepState, ZeroScaler, ZeroScalerStatus, crd};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ApiServer, options, start};

#[derive(Deserialize)]
struct Case {
    name: String,
    spec: Value,
    #[serde(default)]
    refused: BTreeMap<String, String>,
}

async fn with_definition() -> (ApiServer, Client) {
    let (server, client) = start(options()).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &crd::crd()).await.expect("created");
    (server, client)
}

fn untyped(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &ApiResource::erase::<ZeroScaler>(&()))
}

fn object(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "metadata": {"name": name}, "spec": spec})
}

/// Goal: valid and invalid objects get the same result here as on a server that runs CEL.
#[tokio::test]
async fn valid_objects_are_accepted_and_invalid_ones_rejected_by_field() {
    let (_server, client) = with_definition().await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../common/api/tests/zeroscalers.yaml");
    let cases: Vec<Case> = serde_yaml_ng::from_str(&std::fs::read_to_string(file).expect(file)).expect(file);
    assert!(cases.len() > 20);
    let api = untyped(&client);
    for (index, case) in cases.iter().enumerate() {
        let name = format!("case-{index}");
        let given: DynamicObject = serde_json::from_value(object(&name, &case.spec)).expect("an object");
        match api.create(&PostParams::default(), &given).await {
            Ok(_) => assert!(case.refused.is_empty(), "{}: accepted", case.name),
            Err(kube::Error::Api(status)) => {
                assert_eq!(status.code, 422, "{}: {status:?}", case.name);
                for field in case.refused.keys() {
                    assert!(status.message.contains(field), "{}: {field}: {}", case.name, status.message);
                }
                assert!(!case.refused.is_empty(), "{}: {}", case.name, status.message);
            }
            Err(error) => panic!("{}: {error}", case.name),
        }
    }
}

/// Goal: the documented defaults are set, a status cannot be written on creation, and the table has the columns for
/// people.
#[tokio::test]
async fn defaults_status_and_columns_are_served() {
    let (_server, client) = with_definition().await;
    let mut given = object("hello", &json!({"target": {"name": "hello"}, "services": null}));
    given["status"] = json!({"state": "Awake"});
    let given: DynamicObject = serde_json::from_value(given).expect("an object");
    let created = untyped(&client).create(&PostParams::default(), &given).await.expect("created");
    assert_eq!(created.data["spec"]["target"], json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "hello"}));
    assert_eq!(created.data["spec"]["wake"], json!({"timeout": "300s", "maxHeld": 10_000, "probe": "auto"}));
    let timeouts = json!({"request": "0s", "responseStart": "0s", "idle": "0s"});
    assert_eq!(created.data["spec"]["timeouts"], timeouts);
    assert_eq!(created.data["spec"]["concurrency"], json!(0));

    let typed: Api<ZeroScaler> = Api::default_namespaced(client.clone());
    let read = typed.get("hello").await.expect("readable");
    assert!(!read.is_ready() && read.condition("Ready").is_some_and(|ready| ready.status == "Unknown"));
    let state = read.status.as_ref().map(|status| status.state);
    assert_eq!(state, Some(SleepState::Unknown), "a creation does not set the status");
    let status = ZeroScalerStatus {
        state: SleepState::Asleep,
        min: Some(0),
        host_names: "a.example.com, *.b.example.com".into(),
        ..Default::default()
    };
    let patch = Patch::Merge(json!({"status": status}));
    typed.patch_status("hello", &PatchParams::default(), &patch).await.expect("a status");

    let request = http::Request::get("/apis/zeroscale.dev/v1alpha1/namespaces/default/zeroscalers")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .expect("a request");
    let table: Value = client.request(request).await.expect("a table");
    let columns = table["columnDefinitions"].as_array().expect("columns");
    let names: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    assert_eq!(names[..10], ["Name", "Target", "Hosts", "Min", "Max", "Pods", "State", "Paused", "Ready", "Age"]);
    let cells = table["rows"][0]["cells"].as_array().expect("cells");
    let hosts = "a.example.com, *.b.example.com";
    let expected = json!(["hello", "hello", hosts, 0, null, null, "Asleep", false, "Unknown"]);
    assert_eq!(json!(cells[..9]), expected);
}
