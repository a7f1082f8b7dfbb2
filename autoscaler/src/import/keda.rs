//! KEDA's HTTP add-on: HTTPScaledObject (v1alpha1) and InterceptorRoute (v1beta1) with the ScaledObject that scales it.
//!
//! There the Service in front of the pods exists already and stays reachable around the interceptor; here it is
//! adopted, so every caller goes through the activator. KEDA aims at the target value itself, not at a share of it,
//! keeps a workload for five minutes after its last request, and never makes more than a hundred replicas unless told.

use super::source::Source;
use super::{Annotations, pod_autoscaler};
use common::annotations::{MAX_SCALE, METRIC, MIN_SCALE, POD_RETENTION, TARGET, TARGET_UTILIZATION, WINDOW};
use serde_json::{Value, json};
use std::collections::HashMap;

/// KEDA's defaults: most replicas, seconds of cooldown, target value.
const REPLICAS_MAX: &str = "100";
const COOLDOWN: &str = "300";
const TARGET_VALUE: &str = "100";
/// Where a trigger of a ScaledObject names its InterceptorRoute.
const ROUTE: &str = "interceptorRoute";

const BY_HOST_ALONE: &str = "workloads are told apart by host alone; route paths and headers in the ingress";
const HELD: &str = "a held request waits as long as zeroscale.dev/timeout allows in all";
const OF_SERVICE: &str = "a port of the Service; the container's is found by its name (http, http1, h2c, grpc) or by being \
                          the only one, else name it by zeroscale.dev/port";

/// An HTTPScaledObject.
pub(super) fn http_scaled_object(from: &mut Source) -> Vec<Value> {
    let name = from.text("/metadata/name").unwrap_or_default();
    let namespace = from.text("/metadata/namespace");
    let mut annotations = Annotations::new();
    let mut hosts = Vec::new();
    texts(from.take("/spec/hosts"), &mut hosts);
    say_hosts(from, &mut annotations, hosts);
    from.lose("/spec/pathPrefixes", BY_HOST_ALONE);
    from.lose("/spec/headers", BY_HOST_ALONE);

    let service = from.text("/spec/scaleTargetRef/service");
    let target = json!({
        "apiVersion": from.text("/spec/scaleTargetRef/apiVersion").unwrap_or_else(|| "apps/v1".into()),
        "kind": from.text("/spec/scaleTargetRef/kind").unwrap_or_else(|| "Deployment".into()),
        "name": from.text("/spec/scaleTargetRef/name").or_else(|| service.clone()).unwrap_or_else(|| name.clone()),
    });
    adopt(&mut annotations, &name, service);
    from.lose("/spec/scaleTargetRef/port", OF_SERVICE);
    from.lose("/spec/scaleTargetRef/portName", OF_SERVICE);

    replicas(from, &mut annotations, ["/spec/replicas/min", "/spec/replicas/max", "/spec/scaledownPeriod"]);
    from.lose("/spec/initialCooldownPeriod", "a workload is adopted with the replicas that it has");
    let pending = from.text("/spec/targetPendingRequests");
    measured(from, &mut annotations, pending);
    from.lose("/spec/timeouts/conditionWait", HELD);
    duration(from, &mut annotations, "/spec/timeouts/responseHeader", "zeroscale.dev/response-start-timeout");
    from.lose(
        "/spec/coldStartTimeoutFailoverRef",
        "requests are held until the workload is awake; there is no other Service",
    );
    vec![pod_autoscaler(&name, namespace, annotations, target)]
}

/// An InterceptorRoute, with the ScaledObject that names it, if that is among the documents.
pub(super) fn interceptor_route(from: &mut Source, scaled: &HashMap<String, Value>) -> Vec<Value> {
    let name = from.text("/metadata/name").unwrap_or_default();
    let namespace = from.text("/metadata/namespace");
    let mut annotations = Annotations::new();
    let mut hosts = Vec::new();
    let rules = from.look("/spec/rules").and_then(Value::as_array).map_or(0, Vec::len);
    for rule in 0..rules {
        texts(from.take(&format!("/spec/rules/{rule}/hosts")), &mut hosts);
        from.lose(&format!("/spec/rules/{rule}/paths"), BY_HOST_ALONE);
        from.lose(&format!("/spec/rules/{rule}/headers"), BY_HOST_ALONE);
    }
    say_hosts(from, &mut annotations, hosts);
    let service = from.text("/spec/target/service").unwrap_or_else(|| name.clone());
    from.lose("/spec/target/port", OF_SERVICE);
    from.lose("/spec/target/portName", OF_SERVICE);

    let target = match scaled.get(&name) {
        Some(object) => {
            let mut object = Source::new(object.clone());
            for field in ["/metadata", "/spec/triggers"] {
                object.take(field);
            }
            let target = json!({
                "apiVersion": object.text("/spec/scaleTargetRef/apiVersion").unwrap_or_else(|| "apps/v1".into()),
                "kind": object.text("/spec/scaleTargetRef/kind").unwrap_or_else(|| "Deployment".into()),
                "name": object.text("/spec/scaleTargetRef/name").unwrap_or_else(|| service.clone()),
            });
            let fields = ["/spec/minReplicaCount", "/spec/maxReplicaCount", "/spec/cooldownPeriod"];
            replicas(&mut object, &mut annotations, fields);
            object.lose("/spec/pollingInterval", "the load is reported, not polled");
            for (field, why) in object.lost() {
                from.note(&format!("/ScaledObject/{}", field.replace('.', "/")), why);
            }
            target
        }
        None => {
            from.note(
                "/spec/target/service",
                format!("Deployment {service} is taken for the workload; no ScaledObject says"),
            );
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": service})
        }
    };
    adopt(&mut annotations, &name, Some(service));
    measured(from, &mut annotations, None);
    from.lose("/spec/timeouts/readiness", HELD);
    duration(from, &mut annotations, "/spec/timeouts/request", "zeroscale.dev/timeout");
    duration(from, &mut annotations, "/spec/timeouts/responseHeader", "zeroscale.dev/response-start-timeout");
    from.lose("/spec/coldStart", "requests are held until the workload is awake; there is no other answer");
    from.lose("/spec/staticRoutes", "answer them in the ingress");
    vec![pod_autoscaler(&name, namespace, annotations, target)]
}

/// ScaledObjects by the InterceptorRoute that they name.
pub(super) fn scaled_objects(documents: &[(String, Value)]) -> HashMap<String, Value> {
    let named = documents.iter().filter(|(_, document)| document["kind"] == "ScaledObject");
    named.filter_map(|(_, document)| Some((route(document)?, document.clone()))).collect()
}

/// The InterceptorRoute that a ScaledObject names.
pub(super) fn route_of(from: &Source) -> Option<String> {
    route(from.look("")?)
}

fn route(object: &Value) -> Option<String> {
    let triggers = object.pointer("/spec/triggers")?.as_array()?;
    triggers.iter().find_map(|trigger| Some(trigger["metadata"].get(ROUTE)?.as_str()?.to_owned()))
}

fn texts(value: Option<Value>, into: &mut Vec<String>) {
    let items = value.as_ref().and_then(Value::as_array).into_iter().flatten();
    into.extend(items.filter_map(Value::as_str).map(str::to_owned));
}

fn say_hosts(from: &mut Source, annotations: &mut Annotations, mut hosts: Vec<String>) {
    if hosts.iter().any(|host| host == "*") {
        from.note("/spec/hosts", "a host that matches everything has no equivalent; name the hosts");
        hosts.retain(|host| host != "*");
    }
    hosts.dedup();
    if !hosts.is_empty() {
        annotations.insert("zeroscale.dev/hosts".into(), hosts.join(",").into());
    }
}

/// The Service in front of the workload exists, and is to lead to the activator while that sleeps.
fn adopt(annotations: &mut Annotations, name: &str, service: Option<String>) {
    let Some(service) = service else { return };
    annotations.insert("zeroscale.dev/adopt-service".into(), "true".into());
    if service != name {
        annotations.insert("zeroscale.dev/service".into(), service.into());
    }
}

fn replicas(from: &mut Source, annotations: &mut Annotations, [min, max, cooldown]: [&str; 3]) {
    let mut set = |key: &str, value: String| annotations.insert(key.to_owned(), value.into());
    if let Some(min) = from.text(min).filter(|min| min != "0") {
        set(MIN_SCALE.name, min);
    }
    set(MAX_SCALE.name, from.text(max).unwrap_or_else(|| REPLICAS_MAX.into()));
    set(POD_RETENTION.name, format!("{}s", from.text(cooldown).unwrap_or_else(|| COOLDOWN.into())));
}

/// What is measured, and the target; `pending` is the deprecated field for it.
fn measured(from: &mut Source, annotations: &mut Annotations, pending: Option<String>) {
    let rate = from.look("/spec/scalingMetric/requestRate").is_some_and(|rate| !rate.is_null());
    let at = if rate { "/spec/scalingMetric/requestRate" } else { "/spec/scalingMetric/concurrency" };
    let target = from.text(&format!("{at}/targetValue")).or(pending).unwrap_or_else(|| TARGET_VALUE.into());
    annotations.insert(METRIC.name.into(), if rate { "rps" } else { "concurrency" }.into());
    annotations.insert(TARGET.name.into(), target.into());
    annotations.insert(TARGET_UTILIZATION.name.into(), "100".into());
    if rate {
        let granularity = format!("{at}/granularity");
        if from.text(&granularity).is_some_and(|length| length != "1s") {
            from.note(&granularity, "windows count by the second");
        }
        let window = from.text(&format!("{at}/window")).unwrap_or_else(|| "1m".into());
        annotations.insert(WINDOW.name.into(), window.into());
    }
}

fn duration(from: &mut Source, annotations: &mut Annotations, pointer: &str, key: &str) {
    match from.text(pointer) {
        None => {}
        Some(zero) if zero == "0s" || zero == "0" => {
            from.note(pointer, format!("without a bound; {key} must be more than 0"))
        }
        Some(duration) => drop(annotations.insert(key.into(), duration.into())),
    }
}
