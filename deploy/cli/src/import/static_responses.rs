//! Responses without a pod in KEDA's HTTP add-on: the placeholder and static routes.
//!
//! In the add-on, a path also matches everything below it, and a route matches if any of its rules does. Here each rule
//! becomes a separate entry. The add-on responds to any method; here the usual methods are listed.

use super::draft::put;
use super::source::Source;
use serde_json::{Value, json};

/// Methods of a translated route, which has no method in the add-on.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Translates the static routes of an InterceptorRoute to `wake.static`.
pub(super) fn static_routes(from: &mut Source) -> Vec<Value> {
    let mut entries = Vec::new();
    for route in 0..from.count("/spec/staticRoutes") {
        let at = format!("/spec/staticRoutes/{route}");
        let response = response(from, &format!("{at}/response")).unwrap_or_else(|| json!({}));
        let always = from.text(&format!("{at}/responseMode")).is_some_and(|mode| mode == "Always");
        for rule in 0..from.count(&format!("{at}/rules")) {
            let mut entry = json!({"match": matching(from, &format!("{at}/rules/{rule}")), "response": response});
            put(&mut entry, "answer", always.then_some("Always"));
            entries.push(entry);
        }
    }
    entries
}

fn matching(from: &mut Source, at: &str) -> Value {
    from.drop_field(&format!("{at}/hosts"), "a static response applies to all hosts of the workload");
    let paths = format!("{at}/paths");
    let mut found = Vec::new();
    for index in 0..from.count(&paths) {
        let Some(path) = from.text(&format!("{paths}/{index}/value")) else { continue };
        match path.trim_matches('/') {
            "" => found.push("/*".to_owned()),
            path => found.extend([format!("/{path}"), format!("/{path}/*")]),
        }
    }
    let headers = from.take(&format!("{at}/headers"));
    let headers = headers.filter(|headers| headers.as_array().is_some_and(|all| !all.is_empty()));
    if found.is_empty() && headers.is_none() {
        found.push("/*".to_owned());
    }
    let mut matching = json!({"methods": METHODS});
    put(&mut matching, "paths", found);
    put(&mut matching, "headers", headers);
    matching
}

/// Translates a static response, if there is one.
pub(super) fn response(from: &mut Source, at: &str) -> Option<Value> {
    from.look(at).filter(|value| value.is_object())?;
    let mut response = json!({});
    put(&mut response, "status", from.number(&format!("{at}/statusCode")).filter(|status| *status != json!(0)));
    let headers = from.take(&format!("{at}/headers"));
    let headers = headers.as_ref().and_then(Value::as_object).into_iter().flatten();
    let headers: Vec<_> = headers.map(|(name, value)| json!({"name": name, "value": value})).collect();
    put(&mut response, "headers", headers);
    put(&mut response, "body", from.text(&format!("{at}/body")).filter(|body| !body.is_empty()));
    let source = format!("{at}/bodyFromConfigMap");
    if let Some(name) = from.text(&format!("{source}/name")) {
        let key = from.text(&format!("{source}/key"));
        let key = key.map_or("the key of each path".to_owned(), |key| format!("key {key:?}"));
        from.note(&source, format!("the body is part of the ZeroScaler: copy {key} of ConfigMap {name} into body"));
    }
    Some(response)
}
