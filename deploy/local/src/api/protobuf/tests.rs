//! Bodies from kubectl, unsupported and broken bodies, and random bytes.

use super::*;
use proptest::prelude::*;
use serde_json::json;

/// Encodes a field of bytes, shorter than 16 KiB.
fn bytes(number: u8, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    let length = u16::try_from(value.len()).expect("short");
    [&[number << 3 | 2, length.to_le_bytes()[0] | 0x80, u8::try_from(length >> 7).expect("short")][..], value].concat()
}

/// Encodes a field with a number below 128.
fn small(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn pair(number: u8, key: &str, value: &str) -> Vec<u8> {
    bytes(number, [bytes(1, key), bytes(2, value)].concat())
}

fn body(api_version: &str, kind: &str, object: &[Vec<u8>]) -> Vec<u8> {
    let types = bytes(1, [bytes(1, api_version), bytes(2, kind)].concat());
    // Encoding and content type follow; both are empty.
    [MAGIC.to_vec(), types, bytes(2, object.concat()), bytes(3, ""), bytes(4, "")].concat()
}

/// Encodes metadata as Go does: fields that are not pointers are present, whatever their value.
fn named(name: &str) -> Vec<u8> {
    let empty = [2, 3, 4, 5, 6].map(|number| bytes(number, ""));
    bytes(1, [bytes(1, name), empty.concat(), small(7, 0), bytes(8, "")].concat())
}

/// Parses a body. The error is code and message.
fn parsed(body: &[u8]) -> std::result::Result<Value, (u16, String)> {
    read(body).map_err(|error| (error.code, error.body["message"].as_str().unwrap_or_default().to_owned()))
}

/// Goal: objects from kubectl are converted to the same JSON: Go's zeros are absent, zeros behind pointers are values,
/// and maps and lists collect their entries.
#[test]
fn bodies_from_kubectl_are_converted_to_json() {
    let container = [bytes(1, "c"), bytes(2, "i"), bytes(3, "local"), bytes(3, ""), bytes(5, ""), bytes(8, "")];
    let pod = bytes(2, [bytes(2, container.concat()), bytes(3, ""), small(11, 0)].concat());
    let selector = bytes(2, pair(1, "app", "d"));
    let template = bytes(3, [bytes(1, pair(11, "app", "d")), pod].concat());
    let strategy = bytes(4, bytes(1, ""));
    let deployment = bytes(2, [small(1, 0), selector, template, strategy, small(5, 0)].concat());
    let port =
        |target: &[u8]| [bytes(1, "http"), bytes(2, "TCP"), small(3, 80), bytes(4, target), small(5, 0)].concat();
    let number = [small(1, 0), small(2, 81), bytes(3, "")].concat();
    let text = [small(1, 1), small(2, 0), bytes(3, "web")].concat();
    let none = [small(1, 0), small(2, 0), bytes(3, "")].concat();
    let ports = [&number, &text, &none].map(|target| bytes(1, port(target))).concat();
    let minus_one = [&[1 << 3][..], &[0xff; 9], &[1]].concat();
    let spec = json!({
        "replicas": 0, "selector": {"matchLabels": {"app": "d"}},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": "i", "command": ["local", ""]}]},
        },
    });
    let ports_spec = json!({"ports": [
        {"name": "http", "protocol": "TCP", "port": 80, "targetPort": 81},
        {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "web"},
        {"name": "http", "protocol": "TCP", "port": 80},
    ]});
    let options = vec![small(1, 0), bytes(2, bytes(1, "u")), bytes(4, "Background")];
    let parsed_options =
        json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "propagationPolicy": "Background"});
    let secret = vec![named("s"), pair(2, "a", "\u{0}"), pair(2, "b", ""), bytes(3, ""), small(5, 0)];
    let parsed_secret = json!({"metadata": {"name": "s"}, "data": {"a": "AA==", "b": ""}, "immutable": false});
    let namespace = vec![named("demo"), bytes(2, ""), bytes(3, bytes(1, ""))];
    let review = vec![named(""), bytes(2, bytes(1, bytes(1, "")))];
    let rows = [
        ("v1", "Namespace", namespace, json!({"metadata": {"name": "demo"}})),
        ("v1", "DeleteOptions", options, parsed_options),
        ("authentication.k8s.io/v1", "SelfSubjectReview", review, json!({})),
        ("v1", "Secret", secret, parsed_secret),
        (
            "apps/v1",
            "Deployment",
            vec![named("d"), deployment, bytes(3, small(1, 0))],
            json!({"metadata": {"name": "d"}, "spec": spec}),
        ),
        ("v1", "Service", vec![bytes(2, ports)], json!({"spec": ports_spec})),
        ("apps/v1", "Deployment", vec![bytes(2, minus_one)], json!({"spec": {"replicas": -1}})),
    ];
    for (api_version, kind, object, mut expected) in rows {
        (expected["apiVersion"], expected["kind"]) = (api_version.into(), kind.into());
        assert_eq!(parsed(&body(api_version, kind, &object)), Ok(expected));
    }
}

/// Goal: unsupported data is never lost silently: neither an unknown kind nor an unknown field with a value.
#[test]
fn unsupported_kinds_and_fields_are_rejected() {
    for (body, what) in [
        (body("v1", "Pod", &[named("p")]), "v1 Pod"),
        (body("v1", "Namespace", &[bytes(2, bytes(1, "kubernetes"))]), "field 2 of Named"),
    ] {
        let (code, message) = parsed(&body).expect_err(what);
        assert!(code == 415 && message.contains(&format!("cannot read {what} in protobuf")), "{message}");
    }
}

/// Goal: a truncated or invalid body is rejected with 400.
#[test]
fn a_truncated_or_invalid_body_is_rejected() {
    let whole = body("v1", "ConfigMap", &[named("c"), pair(2, "a", "b")]);
    for length in 0..MAGIC.len() {
        assert_eq!(parsed(&whole[..length]).expect_err("cut off").0, 400, "{length} bytes");
    }
    let cut = whole.len() - bytes(3, "").len() * 2 - 1;
    let endless = [MAGIC, &[8], &[0xff; 10]].concat();
    let rows = [
        (whole[..cut].to_vec(), "it is cut off"),
        (endless, "it is cut off, or has a number that does not end"),
        (body("v1", "Namespace", &[vec![1 << 3 | 5, 0, 0, 0, 0]]), "a field of a type that no kind has"),
        (body("v1", "Namespace", &[small(1, 1)]), "a number where bytes should be"),
        (body("v1", "Namespace", &[bytes(1, bytes(1, [0xe9]))]), "a text that is not UTF-8"),
    ];
    for (body, why) in rows {
        assert_eq!(parsed(&body), Err((400, format!("the body cannot be read: {why}"))));
    }
}

proptest! {
    /// No body makes the server panic, whatever its depth.
    #[test]
    fn no_body_panics(noise in prop::collection::vec(any::<u8>(), 0..200), depth in 0..200usize) {
        let nested = (0..depth).fold(noise, |inner, _| bytes(2, inner));
        for kind in ["Deployment", "Namespace"] {
            let api_version = if kind == "Namespace" { "v1" } else { "apps/v1" };
            let _ = read(&body(api_version, kind, std::slice::from_ref(&nested)));
        }
        let _ = read(&[MAGIC, &nested].concat());
    }
}
