//! Columns of `kubectl get zeroscalers`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

/// Name, type, path, and a flag for columns that only `-o wide` shows.
type Column = (&'static str, &'static str, &'static str, bool);

const COLUMNS: [Column; 13] = [
    ("Target", "string", ".spec.target.name", false),
    ("Hosts", "string", ".status.hostNames", false),
    ("Min", "integer", ".status.min", false),
    ("Max", "integer", ".status.max", false),
    ("Pods", "integer", ".status.pods.ready", false),
    ("State", "string", ".status.state", false),
    ("Paused", "boolean", ".spec.paused", false),
    ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", false),
    ("Age", "date", ".metadata.creationTimestamp", false),
    ("Kind", "string", ".spec.target.kind", true),
    ("Service", "string", ".status.service", true),
    ("Desired", "integer", ".status.desired", true),
    ("Reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason", true),
];

/// Returns the columns.
pub(super) fn columns() -> Vec<CustomResourceColumnDefinition> {
    let column = |(name, type_, path, wide): Column| CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: path.to_owned(),
        priority: wide.then_some(1),
        ..CustomResourceColumnDefinition::default()
    };
    COLUMNS.into_iter().map(column).collect()
}
