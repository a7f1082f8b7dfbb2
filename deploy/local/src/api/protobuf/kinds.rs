//! The kinds and fields that are read, by their numbers in Kubernetes' protobuf.
//!
//! They are the kinds that `kubectl create`, `kubectl auth` and `helm` write every day. All others are for `kubectl apply`,
//! which sends JSON. Each message stands above those that hold it.

use self::Count::{Many, One, Optional};
use self::Field as F;
use self::Type::{Blobs, Either, Flag, Number, Of, Text, Texts};

pub(super) struct Message {
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
}

/// One field of a message: its number, its name in JSON, what it holds, and how often.
pub(super) struct Field(pub(super) u32, pub(super) &'static str, pub(super) Type, pub(super) Count);

pub(super) enum Type {
    Text,
    Number,
    Flag,
    /// From text to text.
    Texts,
    /// From text to bytes, in base 64 as JSON has them.
    Blobs,
    /// A number or a text.
    Either,
    Of(&'static Message),
}

pub(super) enum Count {
    /// Zero is absent.
    One,
    /// Zero is a value.
    Optional,
    Many,
}

/// The message of a kind.
pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static Message> {
    let known = match (api_version, kind) {
        ("v1", "Namespace" | "ServiceAccount") => &NAMED,
        ("v1", "ConfigMap") => &CONFIG_MAP,
        ("v1", "Secret") => &SECRET,
        ("v1", "Service") => &SERVICE,
        ("apps/v1", "Deployment") => &DEPLOYMENT,
        ("authentication.k8s.io/v1", "SelfSubjectReview") => &NAMED,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => &ACCESS_REVIEW,
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => &RULES_REVIEW,
        // Of whatever group the object is.
        (_, "DeleteOptions") => &DELETE_OPTIONS,
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
    META:
        F(1, "name", Text, One), F(2, "generateName", Text, One), F(3, "namespace", Text, One),
        F(11, "labels", Texts, Many), F(12, "annotations", Texts, Many);

    /// A kind of which nothing but its name is said.
    NAMED: F(1, "metadata", Of(&META), One);
    CONFIG_MAP:
        F(1, "metadata", Of(&META), One), F(2, "data", Texts, Many), F(3, "binaryData", Blobs, Many),
        F(4, "immutable", Flag, Optional);
    SECRET:
        F(1, "metadata", Of(&META), One), F(2, "data", Blobs, Many), F(3, "type", Text, One),
        F(4, "stringData", Texts, Many), F(5, "immutable", Flag, Optional);

    SERVICE_PORT:
        F(1, "name", Text, One), F(2, "protocol", Text, One), F(3, "port", Number, One),
        F(4, "targetPort", Either, One), F(5, "nodePort", Number, One), F(6, "appProtocol", Text, Optional);
    SERVICE_SPEC:
        F(1, "ports", Of(&SERVICE_PORT), Many), F(2, "selector", Texts, Many), F(3, "clusterIP", Text, One),
        F(4, "type", Text, One), F(7, "sessionAffinity", Text, One), F(10, "externalName", Text, One);
    SERVICE: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&SERVICE_SPEC), One);

    SELECTOR: F(1, "matchLabels", Texts, Many);
    CONTAINER_PORT: F(1, "name", Text, One), F(3, "containerPort", Number, One), F(4, "protocol", Text, One);
    CONTAINER:
        F(1, "name", Text, One), F(2, "image", Text, One), F(3, "command", Text, Many), F(4, "args", Text, Many),
        F(6, "ports", Of(&CONTAINER_PORT), Many);
    POD_SPEC: F(2, "containers", Of(&CONTAINER), Many);
    POD_TEMPLATE: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&POD_SPEC), One);
    DEPLOYMENT_SPEC:
        F(1, "replicas", Number, Optional), F(2, "selector", Of(&SELECTOR), Optional),
        F(3, "template", Of(&POD_TEMPLATE), One);
    DEPLOYMENT: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&DEPLOYMENT_SPEC), One);

    PRECONDITIONS: F(1, "uid", Text, Optional), F(2, "resourceVersion", Text, Optional);
    DELETE_OPTIONS:
        F(1, "gracePeriodSeconds", Number, Optional), F(2, "preconditions", Of(&PRECONDITIONS), Optional),
        F(3, "orphanDependents", Flag, Optional), F(4, "propagationPolicy", Text, Optional), F(5, "dryRun", Text, Many);

    RESOURCE_ACCESS:
        F(1, "namespace", Text, One), F(2, "verb", Text, One), F(3, "group", Text, One), F(4, "version", Text, One),
        F(5, "resource", Text, One), F(6, "subresource", Text, One), F(7, "name", Text, One);
    PATH_ACCESS: F(1, "path", Text, One), F(2, "verb", Text, One);
    ACCESS:
        F(1, "resourceAttributes", Of(&RESOURCE_ACCESS), Optional),
        F(2, "nonResourceAttributes", Of(&PATH_ACCESS), Optional);
    ACCESS_REVIEW: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&ACCESS), One);
    RULES: F(1, "namespace", Text, One);
    RULES_REVIEW: F(1, "metadata", Of(&META), One), F(2, "spec", Of(&RULES), One);
}
