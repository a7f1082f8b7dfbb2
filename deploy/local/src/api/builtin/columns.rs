//! What people see of built-in resources: the columns that `kubectl get` prints.

use serde_json::{Value, json};

use crate::api::fields::{number, text};
use crate::api::printer::{Printer, age};
use crate::api::selector;

const NONE: &str = "<none>";

fn name(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

fn born(object: &Value) -> Value {
    age(text(object, "/metadata/creationTimestamp"))
}

fn count(object: &Value, pointer: &str) -> Value {
    number(object, pointer).unwrap_or(0).into()
}

fn size(object: &Value, keys: &[&str]) -> Value {
    keys.iter().filter_map(|key| object.get(*key)?.as_object()).map(|map| map.len()).sum::<usize>().into()
}

fn or_none(text: &str) -> Value {
    if text.is_empty() { NONE.into() } else { text.into() }
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn joined(values: impl Iterator<Item = String>) -> String {
    values.collect::<Vec<_>>().join(",")
}

fn labels(selector: Option<&Value>) -> Value {
    or_none(&selector.map(selector::to_text).unwrap_or_default())
}

pub(super) const CONFIG_MAP: Printer = Printer {
    columns: &[("Name", 0), ("Data", 0), ("Age", 0)],
    row: |o| vec![name(o), size(o, &["data", "binaryData"]), born(o)],
};

pub(super) const SECRET: Printer = Printer {
    columns: &[("Name", 0), ("Type", 0), ("Data", 0), ("Age", 0)],
    row: |o| vec![name(o), o["type"].clone(), size(o, &["data"]), born(o)],
};

pub(super) const NAMESPACE: Printer = Printer {
    columns: &[("Name", 0), ("Status", 0), ("Age", 0)],
    row: |o| vec![name(o), text(o, "/status/phase").into(), born(o)],
};

pub(super) const NODE: Printer = Printer {
    columns: &[("Name", 0), ("Status", 0), ("Age", 0), ("Version", 0), ("Internal-IP", 1)],
    row: |o| {
        let ready = list(o, "/status/conditions").any(|c| c["type"] == "Ready" && c["status"] == "True");
        let address = list(o, "/status/addresses").find(|address| address["type"] == "InternalIP");
        let address = address.map(|address| text(address, "/address")).unwrap_or_default();
        let status = if ready { "Ready" } else { "NotReady" };
        vec![name(o), status.into(), born(o), text(o, "/status/nodeInfo/kubeletVersion").into(), or_none(address)]
    },
};

pub(super) const LEASE: Printer = Printer {
    columns: &[("Name", 0), ("Holder", 0), ("Age", 0)],
    row: |o| vec![name(o), text(o, "/spec/holderIdentity").into(), born(o)],
};

pub(super) const EVENT: Printer = Printer {
    columns: &[
        ("Last Seen", 0),
        ("Type", 0),
        ("Reason", 0),
        ("Object", 0),
        ("Subobject", 1),
        ("Source", 1),
        ("Message", 0),
        ("First Seen", 1),
        ("Count", 1),
        ("Name", 1),
    ],
    row: |o| {
        let of = |pointers: &[&str]| {
            let found = pointers.iter().map(|pointer| text(o, pointer)).find(|time| !time.is_empty());
            age(found.unwrap_or_default())
        };
        let object = format!("{}/{}", text(o, "/involvedObject/kind").to_lowercase(), text(o, "/involvedObject/name"));
        let source = [text(o, "/source/component"), text(o, "/reportingComponent")];
        let source = source.into_iter().find(|source| !source.is_empty()).unwrap_or_default();
        let host = text(o, "/source/host");
        let source = if host.is_empty() { source.to_string() } else { format!("{source}, {host}") };
        vec![
            of(&["/series/lastObservedTime", "/lastTimestamp", "/eventTime"]),
            text(o, "/type").into(),
            text(o, "/reason").into(),
            object.into(),
            text(o, "/involvedObject/fieldPath").into(),
            source.into(),
            text(o, "/message").trim().into(),
            of(&["/firstTimestamp", "/eventTime"]),
            number(o, "/series/count").or(number(o, "/count")).unwrap_or(1).into(),
            name(o),
        ]
    },
};

pub(super) const POD: Printer = Printer {
    columns: &[
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ],
    row: |o| {
        let total = list(o, "/spec/containers").count();
        let ready = list(o, "/status/containerStatuses").filter(|status| status["ready"] == true).count();
        let restarts: i64 = list(o, "/status/containerStatuses").filter_map(|s| s["restartCount"].as_i64()).sum();
        vec![
            name(o),
            format!("{ready}/{total}").into(),
            pod_status(o).into(),
            restarts.to_string().into(),
            born(o),
            or_none(text(o, "/status/podIP")),
            or_none(text(o, "/spec/nodeName")),
            or_none(text(o, "/status/nominatedNodeName")),
            NONE.into(),
        ]
    },
};

/// The one word for a pod: why a container waits or ended, else the pod's reason or phase.
fn pod_status(pod: &Value) -> String {
    if !text(pod, "/metadata/deletionTimestamp").is_empty() {
        return "Terminating".into();
    }
    let reason = |status| {
        let found = [text(status, "/state/waiting/reason"), text(status, "/state/terminated/reason")];
        found.into_iter().find(|reason| !reason.is_empty())
    };
    let own = [text(pod, "/status/reason"), text(pod, "/status/phase")];
    let word = list(pod, "/status/containerStatuses").filter_map(reason).last();
    word.or_else(|| own.into_iter().find(|word| !word.is_empty())).unwrap_or("Unknown").to_string()
}

pub(super) const DEPLOYMENT: Printer = Printer {
    columns: &[
        ("Name", 0),
        ("Ready", 0),
        ("Up-to-date", 0),
        ("Available", 0),
        ("Age", 0),
        ("Containers", 1),
        ("Images", 1),
        ("Selector", 1),
    ],
    row: |o| {
        let ready = number(o, "/status/readyReplicas").unwrap_or(0);
        let wanted = number(o, "/spec/replicas").unwrap_or(0);
        let mut row = vec![
            name(o),
            format!("{ready}/{wanted}").into(),
            count(o, "/status/updatedReplicas"),
            count(o, "/status/availableReplicas"),
            born(o),
        ];
        row.extend(template(o));
        row
    },
};

pub(super) const REPLICA_SET: Printer = Printer {
    columns: &[
        ("Name", 0),
        ("Desired", 0),
        ("Current", 0),
        ("Ready", 0),
        ("Age", 0),
        ("Containers", 1),
        ("Images", 1),
        ("Selector", 1),
    ],
    row: |o| {
        let mut row = vec![
            name(o),
            count(o, "/spec/replicas"),
            count(o, "/status/replicas"),
            count(o, "/status/readyReplicas"),
            born(o),
        ];
        row.extend(template(o));
        row
    },
};

fn template(o: &Value) -> [Value; 3] {
    let each =
        |key: &str| joined(list(o, "/spec/template/spec/containers").map(|container| text(container, key).to_string()));
    [each("/name").into(), each("/image").into(), labels(o.pointer("/spec/selector"))]
}

pub(super) const SERVICE: Printer = Printer {
    columns: &[
        ("Name", 0),
        ("Type", 0),
        ("Cluster-IP", 0),
        ("External-IP", 0),
        ("Port(s)", 0),
        ("Age", 0),
        ("Selector", 1),
    ],
    row: |o| {
        let ports = list(o, "/spec/ports").map(|port| format!("{}/{}", port["port"], text(port, "/protocol")));
        let terms = o.pointer("/spec/selector").map(|selector| json!({"matchLabels": selector}));
        vec![
            name(o),
            text(o, "/spec/type").into(),
            or_none(text(o, "/spec/clusterIP")),
            or_none(text(o, "/spec/externalName")),
            or_none(&joined(ports)),
            born(o),
            labels(terms.as_ref()),
        ]
    },
};

pub(super) const ENDPOINTS: Printer = Printer {
    columns: &[("Name", 0), ("Endpoints", 0), ("Age", 0)],
    row: |o| {
        let mut all = Vec::new();
        for subset in list(o, "/subsets") {
            for address in list(subset, "/addresses") {
                let ip = text(address, "/ip");
                let ports: Vec<_> = list(subset, "/ports").map(|port| format!("{ip}:{}", port["port"])).collect();
                all.extend(if ports.is_empty() { vec![ip.to_string()] } else { ports });
            }
        }
        vec![name(o), or_none(&few(all)), born(o)]
    },
};

pub(super) const ENDPOINT_SLICE: Printer = Printer {
    columns: &[("Name", 0), ("AddressType", 0), ("Ports", 0), ("Endpoints", 0), ("Age", 0)],
    row: |o| {
        let ports = list(o, "/ports").map(|port| port["port"].to_string()).collect();
        let addresses = list(o, "/endpoints").flat_map(|endpoint| list(endpoint, "/addresses"));
        let addresses = addresses.filter_map(Value::as_str).map(str::to_string).collect();
        let unset = |text: String| if text.is_empty() { "<unset>".to_string() } else { text };
        vec![name(o), text(o, "/addressType").into(), unset(few(ports)).into(), unset(few(addresses)).into(), born(o)]
    },
};

/// At most three of a list, and how many more there are.
fn few(all: Vec<String>) -> String {
    let more = all.len().saturating_sub(3);
    let shown = joined(all.into_iter().take(3));
    if more > 0 { format!("{shown} + {more} more...") } else { shown }
}

pub(super) const HPA: Printer = Printer {
    columns: &[("Name", 0), ("Reference", 0), ("MinPods", 0), ("MaxPods", 0), ("Replicas", 0), ("Age", 0)],
    row: |o| {
        let target = format!("{}/{}", text(o, "/spec/scaleTargetRef/kind"), text(o, "/spec/scaleTargetRef/name"));
        let counts = ["/spec/minReplicas", "/spec/maxReplicas", "/status/currentReplicas"].map(|at| count(o, at));
        let [min, max, now] = counts;
        vec![name(o), target.into(), min, max, now, born(o)]
    },
};
