//! Translates KEDA's HTTP add-on: HTTPScaledObject (v1alpha1), and InterceptorRoute (v1beta1) with the ScaledObject
//! that scales it.
//!
//! With the add-on, clients can bypass the interceptor through the Service of the pods. Here that Service is taken
//! over, so every client goes through the activator, on each port. KEDA aims at the target value itself, not at a share
//! of it. It keeps a workload for five minutes after the last request and creates at most 100 replicas by default.
//!
//! Responses without a pod are the placeholder and static routes. In the add-on, a path also matches everything below
//! it, and a route matches if any of its rules does. Here each rule becomes a separate entry. The add-on responds to
//! any method; here the usual methods are listed.
//!
//! CPU, memory and cron triggers of a ScaledObject that belongs to an InterceptorRoute have an equivalent.

use super::draft::{Draft, put, target};
use super::source::Source;
use serde_json::{Value, json};
use std::collections::HashSet;

/// KEDA's defaults: maximum number of replicas, cooldown in seconds, target value.
const REPLICAS_MAX: u32 = 100;
const COOLDOWN: &str = "300";
const TARGET_VALUE: u32 = 100;
/// Metadata field of a ScaledObject trigger that names its InterceptorRoute.
const ROUTE: &str = "interceptorRoute";

const BY_HOST_ALONE: &str =
    "requests are routed by host only; an Ingress or Gateway can route paths and headers to the Service";
/// Default wait before a fallback responds.
const FALLBACK_AFTER: &str = "30s";

/// Translates an HTTPScaledObject.
pub(super) fn http_scaled_object(from: &mut Source) -> Vec<Value> {
    let service = from.text("/spec/scaleTargetRef/service");
    // Before version 0.7 of the add-on, the target was a Deployment named in its own field.
    let deployment = from.text("/spec/scaleTargetRef/deployment").or_else(|| service.clone());
    let target = target(from, "/spec/scaleTargetRef", deployment.as_deref());
    let mut draft = Draft::new(from, target);
    draft.metadata(from);
    paused(from, &mut draft);
    set_service(&mut draft, service);
    for field in ["port", "portName"] {
        from.take(&format!("/spec/scaleTargetRef/{field}")); // Each port of the Service is served.
    }
    let mut hosts = from.texts("/spec/hosts");
    hosts.extend(from.text("/spec/host"));
    set_hosts(from, &mut draft, hosts);
    from.drop_field("/spec/pathPrefixes", BY_HOST_ALONE);
    from.drop_field("/spec/headers", BY_HOST_ALONE);
    replicas(from, &mut draft, ["/spec/replicas/min", "/spec/replicas/max", "/spec/scaledownPeriod"]);
    from.drop_field("/spec/initialCooldownPeriod", "a workload keeps its replicas at first");
    let pending = from.number("/spec/targetPendingRequests");
    load_metric(from, &mut draft, pending);
    draft.duration("timeouts.responseStart", from, "/spec/timeouts/responseHeader");
    let seconds = from.text("/spec/coldStartTimeoutFailoverRef/timeoutSeconds").filter(|seconds| seconds != "0");
    if !fallback(from, &mut draft, "/spec/coldStartTimeoutFailoverRef", seconds.map(|seconds| format!("{seconds}s"))) {
        draft.duration("wake.timeout", from, "/spec/timeouts/conditionWait");
    } else {
        from.drop_field("/spec/timeouts/conditionWait", "the fallback has its own time, wake.fallback.after");
    }
    vec![draft.finish()]
}

/// Translates an InterceptorRoute with the ScaledObject of its namespace that names it, if the documents have one.
pub(super) fn interceptor_route(from: &mut Source, documents: &[Value]) -> Vec<Value> {
    let service = from.text("/spec/target/service").unwrap_or_else(|| from.name.clone());
    for field in ["port", "portName"] {
        from.take(&format!("/spec/target/{field}")); // Each port of the Service is served.
    }
    let mut draft = match scaled_object(documents, &from.name, from.namespace.as_deref()) {
        Some(object) => {
            let mut object = Source::new(object.clone());
            let target = target(&mut object, "/spec/scaleTargetRef", Some(&service));
            let mut draft = Draft::new(from, target);
            set_service(&mut draft, Some(service));
            let fields = ["/spec/minReplicaCount", "/spec/maxReplicaCount", "/spec/cooldownPeriod"];
            replicas(&mut object, &mut draft, fields);
            let behavior = "/spec/advanced/horizontalPodAutoscalerConfig/behavior";
            draft.set("behavior", object.take(behavior));
            draft.metadata(&mut object);
            paused(&mut object, &mut draft);
            triggers(&mut object, &mut draft);
            object.drop_field("/spec/pollingInterval", "the load is reported, not polled");
            from.note_all("ScaledObject", object);
            draft
        }
        None => {
            let why = format!("no ScaledObject names the workload, so Deployment {service} is assumed");
            from.note("/spec/target/service", why);
            Draft::new(from, json!({"kind": "Deployment", "name": service}))
        }
    };
    draft.metadata(from);
    let mut hosts = Vec::new();
    for rule in 0..from.count("/spec/rules") {
        hosts.extend(from.texts(&format!("/spec/rules/{rule}/hosts")));
        from.drop_field(&format!("/spec/rules/{rule}/paths"), BY_HOST_ALONE);
        from.drop_field(&format!("/spec/rules/{rule}/headers"), BY_HOST_ALONE);
    }
    set_hosts(from, &mut draft, hosts);
    load_metric(from, &mut draft, None);
    let readiness = from.look("/spec/timeouts/readiness").and_then(Value::as_str).map(str::to_owned);
    match fallback(from, &mut draft, "/spec/coldStart/fallback", readiness.filter(|text| text != "0s")) {
        true => _ = from.take("/spec/timeouts/readiness"),
        false => draft.duration("wake.timeout", from, "/spec/timeouts/readiness"),
    }
    draft.duration("timeouts.request", from, "/spec/timeouts/request");
    draft.duration("timeouts.responseStart", from, "/spec/timeouts/responseHeader");
    let placeholder = response(from, "/spec/coldStart/placeholder/response");
    draft.set("wake.placeholder.response", placeholder);
    draft.set("wake.static", static_routes(from));
    vec![draft.finish()]
}

/// Translates the fallback Service, which is named directly or in an object below `service`. Returns false if there is
/// none.
fn fallback(from: &mut Source, draft: &mut Draft, at: &str, after: Option<String>) -> bool {
    let nested = from.look(&format!("{at}/service")).is_some_and(Value::is_object);
    let (at, name) = if nested { (format!("{at}/service"), "name") } else { (at.to_owned(), "service") };
    let Some(service) = from.text(&format!("{at}/{name}")) else { return false };
    let port = from.take(&format!("{at}/port")).filter(|port| *port != json!(0));
    let port = port.or_else(|| from.take(&format!("{at}/portName")));
    draft.set("wake.fallback.service", service);
    draft.set("wake.fallback.port", port);
    draft.set("wake.fallback.after", after.unwrap_or_else(|| FALLBACK_AFTER.to_owned()));
    true
}

/// Translates KEDA's annotations that pause scaling.
fn paused(from: &mut Source, draft: &mut Draft) {
    let at = |name: &str| format!("/metadata/annotations/autoscaling.keda.sh~1{name}");
    if from.switch(&at("paused")) == Some(true) {
        draft.set("paused", true);
    }
    if let Some(replicas) = from.text(&at("paused-replicas")) {
        draft.set("paused", true);
        let why = format!("a paused workload keeps its current replicas; scale the target to {replicas}");
        from.note(&at("paused-replicas"), why);
    }
    for (name, direction) in [("paused-scale-in", "scaleDown"), ("paused-scale-out", "scaleUp")] {
        if from.switch(&at(name)) == Some(true) {
            draft.set(&format!("behavior.{direction}.selectPolicy"), "Disabled");
            let why =
                format!("spec.behavior.{direction} is Disabled, which applies only between one pod and the maximum");
            from.note(&at(name), why);
        }
    }
}

/// Returns the first ScaledObject that names this InterceptorRoute and is in the same namespace.
fn scaled_object<'a>(documents: &'a [Value], name: &str, namespace: Option<&str>) -> Option<&'a Value> {
    let mut scaled = documents.iter().filter(|object| object["kind"] == "ScaledObject");
    scaled.find(|object| route(object).is_some_and(|(_, route)| route == name) && namespace_of(object) == namespace)
}

fn namespace_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/namespace")?.as_str()
}

/// Returns the field that names a route, and the reason why the ScaledObject is not translated with that route. Returns
/// `None` if it is.
pub(super) fn skip_reason(scaled: &Value, documents: &[Value]) -> Option<(String, String)> {
    let (field, name) = route(scaled)?;
    let namespace = namespace_of(scaled);
    let place = namespace.map(|namespace| format!(" of namespace {namespace}")).unwrap_or_default();
    let is_route = |object: &Value| {
        object["kind"] == "InterceptorRoute" && object["metadata"]["name"] == name && namespace_of(object) == namespace
    };
    if !documents.iter().any(is_route) {
        let why =
            format!("InterceptorRoute {name}{place} is not among the documents, so this object is not translated");
        return Some((field, why));
    }
    let first = scaled_object(documents, name, namespace).filter(|first| *first != scaled)?;
    let other = first["metadata"]["name"].as_str().unwrap_or_default();
    let why =
        format!("ScaledObject {other} scales InterceptorRoute {name}{place} already, so this object is not translated");
    Some((field, why))
}

/// Returns the field of a ScaledObject that names an InterceptorRoute, and that name.
pub(super) fn route(object: &Value) -> Option<(String, &str)> {
    let triggers = object.pointer("/spec/triggers")?.as_array()?;
    triggers.iter().enumerate().find_map(|(index, trigger)| {
        let name = trigger["metadata"].get(ROUTE)?.as_str()?;
        Some((format!("/spec/triggers/{index}/metadata/{ROUTE}"), name))
    })
}

fn set_hosts(from: &mut Source, draft: &mut Draft, mut hosts: Vec<String>) {
    if hosts.iter().any(|host| host == "*") {
        from.note("/spec/hosts", "a host that matches everything has no equivalent; name the hosts");
        hosts.retain(|host| host != "*");
    }
    let mut known = HashSet::new();
    hosts.retain(|host| known.insert(host.clone()));
    draft.set("hosts", hosts);
}

/// Sets the Service in front of the workload. The default is the Service with the target's name.
fn set_service(draft: &mut Draft, service: Option<String>) {
    let service = service.filter(|service| draft.spec["target"]["name"] != service.as_str());
    draft.set("services", service.map(|service| json!([{"name": service}])));
}

fn replicas(from: &mut Source, draft: &mut Draft, [min, max, cooldown]: [&str; 3]) {
    let idle = "/spec/idleReplicaCount";
    let at_idle = from.number(idle);
    let mut fewest = from.number(min).filter(|min| *min != json!(0));
    if let Some(at_idle) = at_idle {
        // KEDA has two minimums: one under load, and another while idle.
        if let Some(awake) = fewest.replace(at_idle) {
            let why = format!(
                "the workload wakes with {awake} pods (spec.scale.activation); the load may require fewer later"
            );
            draft.set("scale.activation", awake);
            from.note(min, why);
        }
        fewest = fewest.filter(|fewest| *fewest != json!(0));
    }
    draft.set("scale.min", fewest);
    draft.max(from, max, Some(REPLICAS_MAX));
    draft.set("scale.retention", format!("{}s", from.text(cooldown).unwrap_or_else(|| COOLDOWN.into())));
}

/// Translates the metric of the load and its target. `pending` is the value of the deprecated field.
fn load_metric(from: &mut Source, draft: &mut Draft, pending: Option<Value>) {
    let rate = from.look("/spec/scalingMetric/requestRate").is_some_and(|rate| !rate.is_null());
    let at = if rate { "/spec/scalingMetric/requestRate" } else { "/spec/scalingMetric/concurrency" };
    let target = from.number(&format!("{at}/targetValue")).or(pending).unwrap_or_else(|| TARGET_VALUE.into());
    draft.set(if rate { "scale.load.rps" } else { "scale.load.concurrency" }, target);
    draft.set("scale.load.utilization", 100);
    if rate {
        let granularity = format!("{at}/granularity");
        if from.text(&granularity).is_some_and(|length| length != "1s") {
            from.note(&granularity, "a window always counts by the second");
        }
        draft.set("scale.window", from.text(&format!("{at}/window")).unwrap_or_else(|| "1m".into()));
    }
}

/// Methods of a translated route, which has no method in the add-on.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Translates the static routes of an InterceptorRoute to `wake.static`.
fn static_routes(from: &mut Source) -> Vec<Value> {
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
fn response(from: &mut Source, at: &str) -> Option<Value> {
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

/// Translates the triggers that have an equivalent. The fields of others remain in the source and are listed.
fn triggers(from: &mut Source, draft: &mut Draft) {
    let (mut metrics, mut schedules) = (Vec::new(), Vec::new());
    for index in 0..from.count("/spec/triggers") {
        let at = format!("/spec/triggers/{index}");
        if from.take(&format!("{at}/metadata/{ROUTE}")).is_some() {
            from.take(&format!("{at}/type"));
            from.take(&format!("{at}/metadata/scalerAddress")); // Not needed: the activators report the load.
            continue;
        }
        let kind = from.text(&format!("{at}/type")).unwrap_or_default();
        match kind.as_str() {
            "cpu" | "memory" => metrics.extend(resource(from, &at, &kind)),
            "cron" => schedules.extend(schedule(from, &at)),
            _ => {
                let other = "spec.metrics accepts any metric of the cluster's metrics APIs";
                from.note(&at, format!("a {kind} trigger is not translated; {other}"));
            }
        }
    }
    draft.set("metrics", metrics);
    draft.set("schedules", schedules);
}

/// Translates a CPU or memory trigger to a metric.
fn resource(from: &mut Source, at: &str, name: &str) -> Option<Value> {
    let former = from.text(&format!("{at}/metadata/type"));
    let kind = from.text(&format!("{at}/metricType")).or(former).unwrap_or_else(|| "Utilization".to_owned());
    let container = from.text(&format!("{at}/metadata/containerName"));
    let value = match kind.as_str() {
        "Utilization" => ("averageUtilization", from.number(&format!("{at}/metadata/value"))?),
        _ => ("averageValue", from.text(&format!("{at}/metadata/value"))?.into()),
    };
    let mut source = json!({"name": name, "target": {"type": kind, value.0: value.1}});
    Some(match container {
        Some(container) => {
            source["container"] = container.into();
            json!({"type": "ContainerResource", "containerResource": source})
        }
        None => json!({"type": "Resource", "resource": source}),
    })
}

/// Translates a cron trigger to a schedule, if start and end differ only in hour and minute.
fn schedule(from: &mut Source, at: &str) -> Option<Value> {
    const DAY: u32 = 24 * 60;
    let read = |from: &Source, name: &str| {
        let text = from.look(&format!("{at}/metadata/{name}"))?.as_str()?.to_owned();
        let mut fields = text.split_whitespace();
        let (minute, hour): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((hour * 60 + minute, fields.collect::<Vec<_>>().join(" "), text.clone()))
    };
    let day = |((begin, days, cron), (until, other, _)): ((u32, String, String), (u32, String, String))| {
        let length = (until + DAY).checked_sub(begin).map_or(0, |length| length % DAY);
        (days == other && length > 0 && (until >= begin || days == "* * *")).then_some((cron, length))
    };
    let Some((cron, length)) = read(from, "start").zip(read(from, "end")).and_then(day) else {
        from.note(at, "its times are not on one day: write it as an entry of spec.schedules");
        return None;
    };
    for name in ["start", "end"] {
        from.take(&format!("{at}/metadata/{name}"));
    }
    let mut schedule = json!({"cron": cron, "duration": format!("{length}m")});
    put(&mut schedule, "timeZone", from.text(&format!("{at}/metadata/timezone")));
    put(&mut schedule, "min", from.number(&format!("{at}/metadata/desiredReplicas")));
    Some(schedule)
}
