//! The kinds and fields that are read, by their numbers in Kubernetes' protobuf.
//!
//! What `kubectl create`, `autoscale`, `drain` and `auth` write, of the kinds that something here acts on. Each message
//! stands above those that hold it.

use super::Count::{Many, One, Optional};
use super::Type::{Amounts, Blobs, Either, Flag, Inline, Number, Of, Text, Texts};
use super::{Field as F, Message};

/// The message of a kind.
pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static Message> {
    let known = match (api_version, kind) {
        ("v1", "Namespace") => &NAMESPACE,
        ("v1", "ConfigMap") => &CONFIG_MAP,
        ("v1", "Secret") => &SECRET,
        ("v1", "ServiceAccount") => &SERVICE_ACCOUNT,
        ("v1", "Service") => &SERVICE,
        ("apps/v1", "Deployment") => &DEPLOYMENT,
        ("autoscaling/v1", "HorizontalPodAutoscaler") => &HORIZONTAL,
        ("networking.k8s.io/v1", "Ingress") => &INGRESS,
        ("policy/v1", "PodDisruptionBudget") => &BUDGET,
        ("policy/v1", "Eviction") => &EVICTION,
        ("rbac.authorization.k8s.io/v1", "Role") => &ROLE,
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => &ROLE,
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => &BINDING,
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => &BINDING,
        ("authentication.k8s.io/v1", "TokenRequest") => &TOKEN_REQUEST,
        ("authentication.k8s.io/v1", "SelfSubjectReview") => &QUESTION,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => &ACCESS_REVIEW,
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => &RULES_REVIEW,
        _ => return None,
    };
    Some(known)
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident: $($fields:expr),+;)+) => {
        $($(#[$doc])* pub(super) static $name: Message = Message { name: stringify!($name), fields: &[$($fields),+] };)+
    };
}

messages! {
    TYPES: F(1, "apiVersion", Text, One), F(2, "kind", Text, One);
    QUANTITY: F(1, "string", Text, One);
    META:
        F(1, "name", Text, One), F(2, "generateName", Text, One), F(3, "namespace", Text, One),
        F(11, "labels", Texts, Many), F(12, "annotations", Texts, Many);

    NAMESPACE: F(1, "metadata", Of(&META), One);
    CONFIG_MAP:
        F(1, "metadata", Of(&META), One), F(2, "data", Texts, Many), F(3, "binaryData", Blobs, Many),
        F(4, "immutable", Flag, Optional);
    SECRET:
        F(1, "metadata", Of(&META), One), F(2, "data", Blobs, Many), F(3, "type", Text, One),
        F(4, "stringData", Texts, Many), F(5, "immutable", Flag, Optional);
    SERVICE_ACCOUNT: F(1, "metadata", Of(&META), One);

    SELECTOR_REQUIREMENT: F(1, "key", Text, One), F(2, "operator", Text, One), F(3, "values", Text, Many);
    SELECTOR: F(1, "matchLabels", Texts, Many), F(2, "matchExpressions", Of(&SELECTOR_REQUIREMENT), Many);

    SERVICE_PORT:
        F(1, "name", Text, One), F(2, "protocol", Text, One), F(3, "port", Number, One),
        F(4, "targetPort", Either, One), F(5, "nodePort", Number, One), F(6, "appProtocol", Text, Optional);
    SERVICE_SPEC:
        F(1, "ports", Of(&SERVICE_PORT), Many), F(2, "selector", Texts, Many), F(3, "clusterIP", Text, One),
        F(4, "type", Text, One), F(7, "sessionAffinity", Text, One), F(10, "externalName", Text, One);
    SERVICE: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&SERVICE_SPEC), One);

    CONTAINER_PORT:
        F(1, "name", Text, One), F(2, "hostPort", Number, One), F(3, "containerPort", Number, One),
        F(4, "protocol", Text, One);
    VARIABLE: F(1, "name", Text, One), F(2, "value", Text, One);
    RESOURCES: F(1, "limits", Amounts, Many), F(2, "requests", Amounts, Many);
    CONTAINER:
        F(1, "name", Text, One), F(2, "image", Text, One), F(3, "command", Text, Many), F(4, "args", Text, Many),
        F(5, "workingDir", Text, One), F(6, "ports", Of(&CONTAINER_PORT), Many), F(7, "env", Of(&VARIABLE), Many),
        F(8, "resources", Of(&RESOURCES), One), F(14, "imagePullPolicy", Text, One);
    POD_SPEC:
        F(2, "containers", Of(&CONTAINER), Many), F(3, "restartPolicy", Text, One),
        F(4, "terminationGracePeriodSeconds", Number, Optional), F(8, "serviceAccountName", Text, One);
    POD_TEMPLATE: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&POD_SPEC), One);
    DEPLOYMENT_SPEC:
        F(1, "replicas", Number, Optional), F(2, "selector", Of(&SELECTOR), Optional),
        F(3, "template", Of(&POD_TEMPLATE), One);
    DEPLOYMENT: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&DEPLOYMENT_SPEC), One);

    SCALE_TARGET: F(1, "kind", Text, One), F(2, "name", Text, One), F(3, "apiVersion", Text, One);
    HORIZONTAL_SPEC:
        F(1, "scaleTargetRef", Of(&SCALE_TARGET), One), F(2, "minReplicas", Number, Optional),
        F(3, "maxReplicas", Number, One), F(4, "targetCPUUtilizationPercentage", Number, Optional);
    HORIZONTAL: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&HORIZONTAL_SPEC), One);

    BACKEND_PORT: F(1, "name", Text, One), F(2, "number", Number, One);
    BACKEND_SERVICE: F(1, "name", Text, One), F(2, "port", Of(&BACKEND_PORT), One);
    BACKEND: F(4, "service", Of(&BACKEND_SERVICE), Optional);
    INGRESS_PATH: F(1, "path", Text, One), F(2, "backend", Of(&BACKEND), One), F(3, "pathType", Text, Optional);
    INGRESS_PATHS: F(1, "paths", Of(&INGRESS_PATH), Many);
    INGRESS_RULE_VALUE: F(1, "http", Of(&INGRESS_PATHS), Optional);
    INGRESS_RULE: F(1, "host", Text, One), F(2, "", Inline(&INGRESS_RULE_VALUE), One);
    INGRESS_TLS: F(1, "hosts", Text, Many), F(2, "secretName", Text, One);
    INGRESS_SPEC:
        F(1, "defaultBackend", Of(&BACKEND), Optional), F(2, "tls", Of(&INGRESS_TLS), Many),
        F(3, "rules", Of(&INGRESS_RULE), Many), F(4, "ingressClassName", Text, Optional);
    INGRESS: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&INGRESS_SPEC), One);

    BUDGET_SPEC:
        F(1, "minAvailable", Either, Optional), F(2, "selector", Of(&SELECTOR), Optional),
        F(3, "maxUnavailable", Either, Optional);
    BUDGET: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&BUDGET_SPEC), One);
    DELETE_OPTIONS: F(1, "gracePeriodSeconds", Number, Optional), F(5, "dryRun", Text, Many);
    EVICTION: F(1, "metadata", Of(&META), One), F(2, "deleteOptions", Of(&DELETE_OPTIONS), Optional);

    POLICY_RULE:
        F(1, "verbs", Text, Many), F(2, "apiGroups", Text, Many), F(3, "resources", Text, Many),
        F(4, "resourceNames", Text, Many), F(5, "nonResourceURLs", Text, Many);
    ROLE: F(1, "metadata", Of(&META), One), F(2, "rules", Of(&POLICY_RULE), Many);
    SUBJECT:
        F(1, "kind", Text, One), F(2, "apiGroup", Text, One), F(3, "name", Text, One), F(4, "namespace", Text, One);
    ROLE_REF: F(1, "apiGroup", Text, One), F(2, "kind", Text, One), F(3, "name", Text, One);
    BINDING:
        F(1, "metadata", Of(&META), One), F(2, "subjects", Of(&SUBJECT), Many), F(3, "roleRef", Of(&ROLE_REF), One);

    BOUND_OBJECT:
        F(1, "kind", Text, One), F(2, "apiVersion", Text, One), F(3, "name", Text, One), F(4, "uid", Text, One);
    TOKEN_REQUEST_SPEC:
        F(1, "audiences", Text, Many), F(3, "boundObjectRef", Of(&BOUND_OBJECT), Optional),
        F(4, "expirationSeconds", Number, Optional);
    TOKEN_REQUEST: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&TOKEN_REQUEST_SPEC), One);
    /// A question that is all in its kind.
    QUESTION: F(1, "metadata", Of(&META), One);
    RESOURCE_ACCESS:
        F(1, "namespace", Text, One), F(2, "verb", Text, One), F(3, "group", Text, One), F(4, "version", Text, One),
        F(5, "resource", Text, One), F(6, "subresource", Text, One), F(7, "name", Text, One);
    PATH_ACCESS: F(1, "path", Text, One), F(2, "verb", Text, One);
    ACCESS:
        F(1, "resourceAttributes", Of(&RESOURCE_ACCESS), Optional),
        F(2, "nonResourceAttributes", Of(&PATH_ACCESS), Optional);
    ACCESS_REVIEW: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&ACCESS), One);
    RULES_OF: F(1, "namespace", Text, One);
    RULES_REVIEW: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&RULES_OF), One);
}
