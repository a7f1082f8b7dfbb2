//! Environments of hand-written pods.

use super::*;
use jiff::Timestamp;
use serde_json::json;

fn pod(container: serde_json::Value) -> Pod {
    let mut main = json!({"name": "main", "command": ["x"]});
    json_patch::merge(&mut main, &container);
    serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u",
            "labels": {"serving.knative.dev/revision": "r1", "app": "a"}, "annotations": {"note": "n"},
        },
        "spec": {"serviceAccountName": "sa", "containers": [main]},
    }))
    .expect("a valid Pod")
}

fn placement() -> PodPlacement {
    let (pod_ip, host_ip) = ([127, 1, 0, 5].into(), [127, 0, 0, 1].into());
    PodPlacement { pod_ip, host_ip, node_name: "node".into(), start: Timestamp::UNIX_EPOCH }
}

fn sources() -> Sources {
    let data = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let config_map = data(&[("k", "from-config"), ("other", "o")]);
    [(("configmap", "c".to_owned()), config_map), (("secret", "s".to_owned()), data(&[("k", "from-secret")]))].into()
}

/// Returns variables of a Service, one of which conflicts with `PORT`.
fn links() -> Variables {
    [("WEB_SERVICE_HOST", "10.0.0.1"), ("PORT", "nowhere")].map(|(n, v)| (n.to_owned(), v.to_owned())).into()
}

fn env(container: serde_json::Value) -> Result<Variables, String> {
    let pod = pod(container);
    let main = &pod.spec.as_ref().expect("a spec").containers[0];
    environment(&pod, main, &placement(), &sources(), &links(), |name| (name == "PATH").then(|| "/bin".to_owned()))
}

#[test]
fn the_environment_has_address_port_and_names() {
    let env = env(json!({"ports": [{"containerPort": 9000}]})).expect("valid");
    let expected = [
        ("PATH", "/bin"),
        ("PORT", "9000"),
        ("HOST", "127.1.0.5"),
        ("POD_IP", "127.1.0.5"),
        ("HOSTNAME", "p"),
        ("K_REVISION", "r1"),
        ("K_CONFIGURATION", ""),
        ("K_SERVICE", ""),
        ("WEB_SERVICE_HOST", "10.0.0.1"),
    ];
    for (name, value) in expected {
        assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(env.len(), expected.len(), "nothing else is there");
}

#[test]
fn variables_come_from_values_fields_config_maps_and_secrets() {
    let value_from = |source: serde_json::Value| json!({"name": "X", "valueFrom": source});
    let rows = [
        (json!({"name": "X", "value": "v"}), "v"),
        (json!({"name": "X", "value": "http://$(WEB_SERVICE_HOST)/"}), "http://10.0.0.1/"),
        (value_from(json!({"fieldRef": {"fieldPath": "metadata.name"}})), "p"),
        (value_from(json!({"fieldRef": {"fieldPath": "metadata.namespace"}})), "ns"),
        (value_from(json!({"fieldRef": {"fieldPath": "metadata.uid"}})), "u"),
        (value_from(json!({"fieldRef": {"fieldPath": "metadata.labels['app']"}})), "a"),
        (value_from(json!({"fieldRef": {"fieldPath": "metadata.annotations['note']"}})), "n"),
        (value_from(json!({"fieldRef": {"fieldPath": "metadata.labels['absent']"}})), ""),
        (value_from(json!({"fieldRef": {"fieldPath": "spec.nodeName"}})), "node"),
        (value_from(json!({"fieldRef": {"fieldPath": "spec.serviceAccountName"}})), "sa"),
        (value_from(json!({"fieldRef": {"fieldPath": "status.podIP"}})), "127.1.0.5"),
        (value_from(json!({"fieldRef": {"fieldPath": "status.hostIP"}})), "127.0.0.1"),
        (value_from(json!({"configMapKeyRef": {"name": "c", "key": "k"}})), "from-config"),
        (value_from(json!({"secretKeyRef": {"name": "s", "key": "k"}})), "from-secret"),
    ];
    for (variable, expected) in rows {
        let env = env(json!({"env": [variable.clone()]})).expect("valid");
        assert_eq!(env.get("X").map(String::as_str), Some(expected), "{variable}");
    }
}

#[test]
fn a_missing_source_is_an_error_unless_it_is_optional() {
    let reference = |name: &str, key: &str, optional: bool| {
        let source = json!({"configMapKeyRef": {"name": name, "key": key, "optional": optional}});
        env(json!({"env": [{"name": "X", "valueFrom": source}]}))
    };
    let error = reference("absent", "k", false).expect_err("missing").to_string();
    assert!(error.contains("configmap \"absent\"") && error.contains("\"X\""), "{error}");
    let error = reference("c", "absent", false).expect_err("missing").to_string();
    assert!(error.contains("no key \"absent\""), "{error}");
    assert!(!reference("absent", "k", true).expect("optional").contains_key("X"));
    let unsupported = json!({"resourceFieldRef": {"resource": "limits.cpu"}});
    assert!(env(json!({"env": [{"name": "X", "valueFrom": unsupported}]})).is_err());
}

#[test]
fn env_from_adds_every_key_and_env_overrides_it() {
    let env = env(json!({
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "absent", "optional": true}}],
        "env": [{"name": "P_other", "value": "mine"}, {"name": "Y", "value": "$(P_k)!"}],
    }))
    .expect("valid");
    let read = |name: &str| env.get(name).map(String::as_str);
    assert_eq!((read("P_k"), read("P_other"), read("Y")), (Some("from-config"), Some("mine"), Some("from-config!")));
}

#[test]
fn references_expand_as_kubernetes_defines() {
    let one = "1".to_owned();
    let lookup = |name: &str| (name == "A").then_some(&one);
    let rows = [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(B)", "$(B)"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("50$", "50$"),
        ("", ""),
    ];
    for (text, expected) in rows {
        assert_eq!(expand(text, lookup), expected, "{text}");
    }
}

#[test]
fn a_reference_resolves_only_to_earlier_variables() {
    let env = env(json!({"env": [
        {"name": "EARLY", "value": "$(LATE)"}, {"name": "LATE", "value": "l"}, {"name": "BOTH", "value": "$(EARLY)-$(LATE)"},
    ]}))
    .expect("valid");
    assert_eq!(env.get("EARLY").map(String::as_str), Some("$(LATE)"));
    assert_eq!(env.get("BOTH").map(String::as_str), Some("$(LATE)-l"));
}

#[test]
fn commands_and_arguments_are_expanded_and_a_missing_command_is_rejected() {
    let env = [("PORT".to_owned(), "1".to_owned()), ("HOST".to_owned(), "h".to_owned())].into();
    let words = |container| command_line(&pod(container).spec.expect("a spec").containers[0], &env);
    let expanded = words(json!({"command": ["x", "$(PORT)"], "args": ["--at=$(HOST)"]}));
    assert_eq!(expanded, Ok(vec!["x".into(), "1".into(), "--at=h".into()]));
    let error = words(json!({"command": null, "args": ["a"], "image": "i"})).expect_err("rejected");
    assert!(error.contains("needs a command"), "{error}");
}

#[test]
fn containers_without_a_declared_port_get_distinct_ones() {
    let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
        {"name": "a"}, {"name": "b", "ports": [{"containerPort": 8081}]}, {"name": "c"},
        {"name": "d", "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 7000}]},
    ]}}))
    .expect("a valid Pod");
    let ports: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| port_of(&pod, name)).collect();
    assert_eq!(ports, [8080, 8081, 8082, 7000]);
}
