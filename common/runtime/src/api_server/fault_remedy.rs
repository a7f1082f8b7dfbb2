//! Remedies for faults of the API server, derived from its response or from the connection error.

use super::request_info::RequestInfo;
use std::error::Error;
use std::io;
use tokio_rustls::rustls;

/// Remedy for most missing permissions.
const PERMISSION: &str = "grant this permission to the account: apply the roles of the installation again \
     (standalone: deploy/kubernetes/base/roles.yaml, namespaced/rights/roles.yaml in each of ZEROSCALE_NAMESPACES, and \
     native/roles.yaml for autoscaler-hpa; \
     drop-in: Knative Serving's own roles)";
/// Remedy for missing permissions on metrics that are not Kubernetes' own.
const METRICS_PERMISSION: &str = "kubectl apply --server-side -k deploy/kubernetes/custom-metrics";

pub(super) fn permission_remedy(info: &RequestInfo) -> &'static str {
    match info.group.as_str() {
        "custom.metrics.k8s.io" | "external.metrics.k8s.io" => METRICS_PERMISSION,
        _ => PERMISSION,
    }
}

pub(super) const UNKNOWN_TOKEN: &str = "the API server does not know the ServiceAccount, or the user of the \
     kubeconfig: the token has expired or belongs to another cluster, or the account was deleted; apply \
     deploy/kubernetes/base/accounts.yaml, or use another kubeconfig";
pub(super) const NO_RESPONSE: &str = "the API server accepts connections and does not respond: check its health, and \
     the network between it and this process";

/// Reports whether the message of a 403 means a missing permission, not a quota or a terminating namespace.
pub(super) fn is_missing_permission(message: &str) -> bool {
    message.contains("User \"") && message.contains("\" cannot ")
}

pub(super) fn not_served(info: &RequestInfo) -> String {
    let name = info.qualified();
    let missing = format!("the CustomResourceDefinition {name} is missing");
    let apply = format!("{missing}: kubectl apply --server-side -k deploy/kubernetes/crds");
    match info.group.as_str() {
        "autoscaling.internal.knative.dev" | "networking.internal.knative.dev" => {
            format!("{apply} (drop-in: install the definitions of Knative Serving)")
        }
        "zeroscale.dev" => apply,
        "serving.knative.dev" => format!("{missing}: install Knative Serving, or set ZEROSCALE_MODE=standalone"),
        "metrics.k8s.io" => "install a metrics server".to_owned(),
        "custom.metrics.k8s.io" | "external.metrics.k8s.io" => format!("install an adapter that serves {}", info.group),
        "" => format!("the API server has no resource {name}"),
        _ => format!("{missing}, or the API server is too old for it"),
    }
}

pub(super) fn unreachable(error: &(dyn Error + 'static), server: &str) -> String {
    for cause in causes(error) {
        if let Some(rustls::Error::InvalidCertificate(_)) = cause.downcast_ref() {
            return format!(
                "the certificate of {server} is not signed by the configured CA, or is for another name: check \
                 certificate-authority-data in the kubeconfig, or ca.crt of the ServiceAccount"
            );
        }
        if let Some(error) = cause.downcast_ref::<rustls::Error>() {
            return format!("the TLS handshake with {server} failed ({error}): check that it is an API server");
        }
        let Some(cause) = cause.downcast_ref::<io::Error>() else { continue };
        match cause.kind() {
            io::ErrorKind::ConnectionRefused => {
                return format!(
                    "no process listens at {server}: check that the API server runs, and that this is its address \
                     (server in the kubeconfig, or KUBERNETES_SERVICE_HOST)"
                );
            }
            io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                return format!(
                    "{server} cannot be reached: check its address (server in the kubeconfig, or \
                     KUBERNETES_SERVICE_HOST), network policies and routes"
                );
            }
            _ => {}
        }
    }
    format!("check that an API server responds at {server}")
}

/// Iterates over an error, its causes, and errors wrapped in between.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| next_cause(*error))
}

/// Returns the next cause. An I/O error that wraps another error has that error's source as its own, so `source` alone
/// would skip the wrapped error.
fn next_cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// Formats an error with all its causes in one line.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in causes(error) {
        let text = cause.to_string();
        // Some errors repeat their cause.
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn the_remedy_fits_the_cause() {
        let wrapped = |inner: io::Error| io::Error::other(Box::new(inner) as Box<dyn Error + Send + Sync>);
        let tls = |error: rustls::Error| wrapped(io::Error::new(io::ErrorKind::InvalidData, error));
        let rows = [
            (wrapped(io::ErrorKind::ConnectionRefused.into()), "no process listens at s:1"),
            (wrapped(io::ErrorKind::TimedOut.into()), "s:1 cannot be reached"),
            (tls(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)), "ca.crt"),
            (tls(rustls::Error::HandshakeNotComplete), "the TLS handshake with s:1 failed"),
            (io::Error::other("odd"), "check that an API server"),
        ];
        for (error, part) in rows {
            let remedy = unreachable(&error, "s:1");
            assert!(remedy.contains(part), "{error:?}: {remedy}");
        }
    }

    #[test]
    fn the_remedy_for_an_unserved_resource_fits_its_group() {
        let rows = [
            ("/apis/autoscaling.internal.knative.dev/v1alpha1/podautoscalers", "deploy/kubernetes/crds"),
            ("/apis/serving.knative.dev/v1/revisions", "ZEROSCALE_MODE=standalone"),
            ("/apis/metrics.k8s.io/v1beta1/namespaces/a/pods", "metrics server"),
            ("/apis/example.com/v1/namespaces/a/things", "things.example.com"),
        ];
        for (path, part) in rows {
            let info = RequestInfo::from_request(&Method::GET, &path.parse().expect("a path")).expect("a resource");
            assert!(not_served(&info).contains(part), "{}", not_served(&info));
        }
    }

    #[test]
    fn a_missing_permission_is_distinguished_from_other_403s() {
        let rows = [
            (r#"pods is forbidden: User "a" cannot list resource "pods" in API group "" at the cluster scope"#, true),
            ("services \"a\" is forbidden: unable to create new content in namespace x", false),
            ("pods \"a\" is forbidden: exceeded quota: q", false),
        ];
        for (message, expected) in rows {
            assert_eq!(is_missing_permission(message), expected, "{message}");
        }
    }

    #[test]
    fn each_cause_is_listed_once() {
        let inner = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::HandshakeNotComplete);
        let error = io::Error::other(inner);
        assert_eq!(chain(&error), rustls::Error::HandshakeNotComplete.to_string());
    }
}
