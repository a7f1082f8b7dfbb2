//! Object names, labels, annotations and ports by which parts of the system find each other.

use md5::{Digest, Md5};

/// Standalone's label on Services, EndpointSlices and Endpoints: [`SERVICE_TYPE_PUBLIC`] or [`SERVICE_TYPE_PRIVATE`].
/// It differs from Knative's label, so Knative never selects these objects.
pub const SIDE: &str = "zeroscale.dev/side";
/// Standalone's label on the same objects: the name of the ZeroScaler.
pub const WORKLOAD: &str = "zeroscale.dev/workload";
/// Kubernetes' label for the writer of an EndpointSlice; [`MANAGED_BY`] on slices that standalone writes.
pub const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Knative's label for the side of a Service: [`SERVICE_TYPE_PUBLIC`] or [`SERVICE_TYPE_PRIVATE`].
pub const SERVICE_TYPE: &str = "networking.internal.knative.dev/serviceType";
/// The Service that clients call.
pub const SERVICE_TYPE_PUBLIC: &str = "Public";
/// The Service that selects the revision's pods.
pub const SERVICE_TYPE_PRIVATE: &str = "Private";
/// Label that names the revision.
pub const REVISION: &str = "serving.knative.dev/revision";
/// Label that names the configuration.
pub const CONFIGURATION: &str = "serving.knative.dev/configuration";
/// Label that names the Knative Service, if any.
pub const SERVICE: &str = "serving.knative.dev/service";
/// Label with the uid of the revision.
pub const REVISION_UID: &str = "serving.knative.dev/revisionUID";

/// Class of PodAutoscalers that this autoscaler scales by its own rules.
pub const CLASS_KPA: &str = "kpa.autoscaling.knative.dev";
/// Class of PodAutoscalers that a HorizontalPodAutoscaler scales.
pub const CLASS_HPA: &str = "hpa.autoscaling.knative.dev";

/// Label of the ConfigMaps in the system namespace that record the owners of hosts ([`crate::hosts::ledger`]) and of
/// port numbers ([`crate::ports::ledger`]).
pub const LEDGER: &str = "zeroscale.dev/ledger";
/// Value of [`LEDGER`] for hosts.
pub const LEDGER_OF_HOSTS: &str = "hosts";
/// Value of [`LEDGER`] for port numbers.
pub const LEDGER_OF_PORTS: &str = "ports";
/// Label of the NetworkPolicies in the system namespace that admit the peers of a workload's NetworkPolicies: uid of its
/// ZeroScaler.
pub const GUARDS: &str = "zeroscale.dev/guards";
/// Annotation on an adopted Service that stores its former selector as JSON.
pub const ADOPTED_SELECTOR: &str = "zeroscale.dev/adopted-selector";
/// Finalizer on a ZeroScaler: the autoscaler restores replicas and Service before the object is removed.
pub const FINALIZER: &str = "zeroscale.dev/restore";
/// Label of EndpointSlices: the kind of endpoints in the slice, on port numbers that belong to the workload.
pub const LEADS_TO: &str = "zeroscale.dev/leads-to";
/// Value of [`LEADS_TO`] for slices of activators.
pub const LEADS_TO_ACTIVATORS: &str = "activators";
/// Value of [`LEADS_TO`] for slices of pods.
pub const LEADS_TO_PODS: &str = "pods";
/// Value of `SLICE_MANAGED_BY` on EndpointSlices that standalone writes for public Services.
pub const MANAGED_BY: &str = "zeroscale.dev";

/// Activator data port for HTTP/1.1 (and h2c), also a queue-proxy's.
pub const ACTIVATOR_HTTP1_PORT: u16 = 8012;
/// Activator data port for h2c (and HTTP/1.1), also a queue-proxy's.
pub const ACTIVATOR_H2C_PORT: u16 = 8013;
/// Port of activators and queue-proxies for TLS.
pub const HTTPS_PORT: u16 = 8112;
/// Port of a private Service for TLS.
pub const HTTPS_SERVICE_PORT: u16 = 443;
/// Secret in the system namespace with the certificate that activators present and the CA of queue-proxies.
pub const ROUTING_CERTIFICATE: &str = "routing-serving-certs";
/// Label of ConfigMaps whose values are CA certificates.
pub const TRUST_BUNDLE: &str = "networking.knative.dev/trust-bundle";
/// Name in every queue-proxy's certificate, which activators verify.
pub const DATA_PLANE_NAME: &str = "data-plane.knative.dev";
/// Prefix of the second name in a queue-proxy's certificate; its namespace follows.
pub const DATA_PLANE_USER_PREFIX: &str = "kn-user-";
/// Second name in the certificates of activators and ingresses.
pub const DATA_PLANE_ROUTING_NAME: &str = "kn-routing";
/// Port of the stat server.
pub const STAT_PORT: u16 = 8080;
/// The Service in front of all activators, in the system namespace.
pub const ACTIVATOR_SERVICE: &str = "activator-service";
/// The Service in front of all autoscalers, in the system namespace.
pub const AUTOSCALER_SERVICE: &str = "autoscaler";
/// Default system namespace.
pub const SYSTEM_NAMESPACE: &str = "knative-serving";

const NAME_LENGTH_MAX: usize = 63;

/// Returns the name of a revision's private Service.
pub fn private_service(revision: &str) -> String {
    child_name(revision, "-private")
}

/// Returns `parent` + `suffix`, shortened with a hash if it exceeds 63 characters (`kmeta.ChildName` of
/// knative.dev/pkg).
pub fn child_name(parent: &str, suffix: &str) -> String {
    if parent.len() + suffix.len() <= NAME_LENGTH_MAX {
        return format!("{parent}{suffix}");
    }
    let head_max = NAME_LENGTH_MAX - 32; // Leaves room for the 32 hex digits of an MD5.
    if suffix.len() < head_max {
        let digest = hex::encode(Md5::digest(parent));
        return format!("{}{digest}{suffix}", head(parent, head_max - suffix.len()));
    }
    let digest = hex::encode(Md5::digest(format!("{parent}{suffix}")));
    let mut name = format!("{}{digest}", head(parent, head_max));
    name.push_str(head(suffix, NAME_LENGTH_MAX - name.len()));
    name.truncate(name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len());
    name
}

/// Returns at most the first `n` bytes of `s`, never splitting a character.
fn head(s: &str, n: usize) -> &str {
    &s[..s.floor_char_boundary(n)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the table in Knative's own tests.
    #[test]
    fn child_names_are_shortened_as_upstream_does() {
        let [f55, f63, a56] = [("f", 55), ("f", 63), ("a", 56)].map(|(letter, count)| letter.repeat(count));
        let private = format!("{f55}-private");
        let long = "dream-tonight-cherub-rock-mayonnaise-hummer-disarm-rocket-soma-quiet";
        let rows = [
            ("foo", "foo-private"),
            (&f55, &private),
            (&f63, "fffffffffffffffffffffff105d7597f637e83cc711605ac3ea4957-private"),
            (&a56, "aaaaaaaaaaaaaaaaaaaaaaa3b0c8ac703f828b04c6c197006d17218-private"),
            (long, "dream-tonight-cherub-ro3018a624ca643e16234cb0e57ea11dd8-private"),
        ];
        for (parent, expected) in rows {
            assert_eq!(private_service(parent), expected);
        }
    }
}
