//! Ownership without leases: the autoscalers are members of a StatefulSet, and member N owns bucket N.
//!
//! Upstream's variables enable this mode. The buckets are named by the members' URLs, so the ownership hash is
//! upstream's too: `PROTOCOL://SET-N.SERVICE.NAMESPACE.svc.DOMAIN:PORT`, with the number of buckets from
//! `config-leader-election`. Kubernetes runs at most one pod of each ordinal. Only this prevents two writers, so a pod
//! of the StatefulSet must never be deleted by force.
//!
//! # Where we differ from upstream
//!
//! - A variable that cannot be parsed ends the process; upstream falls back to leases.
//! - A member beyond the number of buckets owns nothing and only forwards. Upstream lets it campaign for leases,
//!   although other members own the same revisions without leases.
//! - Links to members are WebSockets for every value of the protocol; upstream cannot link with its own default,
//!   `http`.

use common_runtime::environment::{EnvironmentError, optional, parsed, required};

/// Membership of a process in a StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatefulSet {
    /// Name of the StatefulSet.
    pub name: String,
    /// Ordinal of this process, from 0.
    pub ordinal: usize,
    /// Name of its headless Service.
    pub service: String,
    /// Port of the members' stat servers, as in the bucket names.
    pub port: u16,
    /// Scheme in the bucket names.
    pub protocol: String,
}

impl StatefulSet {
    /// Reads `STATEFUL_CONTROLLER_ORDINAL`, `STATEFUL_SERVICE_NAME`, `STATEFUL_SERVICE_PORT` and
    /// `STATEFUL_SERVICE_PROTOCOL`. Returns none if the first is not set.
    ///
    /// # Errors
    /// The first is set, and one of them is missing or invalid.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>) -> Result<Option<Self>, EnvironmentError> {
        const ORDINAL: &str = "STATEFUL_CONTROLLER_ORDINAL";
        let Some(member) = optional(get, ORDINAL) else { return Ok(None) };
        let parts = member.rsplit_once('-').and_then(|(name, ordinal)| Some((name, ordinal.parse().ok()?)));
        let Some((name, ordinal)) = parts.filter(|(name, _)| !name.is_empty()) else {
            let rule = "must be the pod's name in its StatefulSet, SET-N";
            return Err(EnvironmentError::new(ORDINAL, member, rule));
        };
        let protocol = optional(get, "STATEFUL_SERVICE_PROTOCOL");
        Ok(Some(Self {
            name: name.to_owned(),
            ordinal,
            service: required(get, "STATEFUL_SERVICE_NAME", "the name of the StatefulSet's headless Service")?,
            port: parsed(get, "STATEFUL_SERVICE_PORT", 80, "must be a port")?,
            protocol: protocol.unwrap_or_else(|| "http".to_owned()),
        }))
    }

    /// Returns the names of `count` buckets: the first members' URLs in byte order. For up to ten this is ordinal
    /// order.
    pub fn buckets(&self, count: u32, namespace: &str, domain: &str) -> Vec<String> {
        let Self { name, service, port, protocol, .. } = self;
        let url = |n| format!("{protocol}://{name}-{n}.{service}.{namespace}.svc.{domain}:{port}");
        let mut buckets: Vec<_> = (0..count).map(url).collect();
        buckets.sort_unstable();
        buckets
    }
}

/// Returns the URL of a member's stat server, derived from its bucket name.
pub(crate) fn stat_url(scheme: &str, bucket: &str) -> String {
    let authority = bucket.split_once("://").map_or(bucket, |(_, authority)| authority);
    format!("{scheme}://{authority}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<StatefulSet>, EnvironmentError> {
        let map: BTreeMap<_, _> = pairs.iter().copied().collect();
        StatefulSet::from_env(&|name: &str| map.get(name).map(|value| (*value).to_owned()))
    }

    #[test]
    fn upstreams_variables_name_the_members() {
        assert_eq!(read(&[("STATEFUL_SERVICE_NAME", "as")]), Ok(None), "leases");
        let least = [("STATEFUL_CONTROLLER_ORDINAL", "my-as-1"), ("STATEFUL_SERVICE_NAME", "as")];
        let set = read(&least).expect("complete").expect("a member");
        assert_eq!((set.name.as_str(), set.ordinal), ("my-as", 1));
        let names = set.buckets(2, "knative-serving", "cluster.local");
        let expected = [
            "http://my-as-0.as.knative-serving.svc.cluster.local:80",
            "http://my-as-1.as.knative-serving.svc.cluster.local:80",
        ];
        assert_eq!(names, expected);
        let mut all = least.to_vec();
        all.extend([("STATEFUL_SERVICE_PORT", "8080"), ("STATEFUL_SERVICE_PROTOCOL", "ws")]);
        let set = read(&all).expect("complete").expect("a member");
        let names = set.buckets(1, "ns", "abc");
        assert_eq!(names, ["ws://my-as-0.as.ns.svc.abc:8080"]);
        assert_eq!(stat_url("ws", &names[0]), names[0]);
        assert_eq!(stat_url("wss", expected[0]), "wss://my-as-0.as.knative-serving.svc.cluster.local:80");
    }

    #[test]
    fn invalid_variables_are_named() {
        let service = ("STATEFUL_SERVICE_NAME", "as");
        for member in ["as", "as-", "-1", "as-x", "as--1x"] {
            let error = read(&[("STATEFUL_CONTROLLER_ORDINAL", member), service]).expect_err(member);
            assert_eq!(error.variable, "STATEFUL_CONTROLLER_ORDINAL");
        }
        let member = ("STATEFUL_CONTROLLER_ORDINAL", "as-0");
        assert_eq!(read(&[member]).expect_err("no Service").variable, "STATEFUL_SERVICE_NAME");
        let error = read(&[member, service, ("STATEFUL_SERVICE_PORT", "http")]).expect_err("no port");
        assert_eq!(error.variable, "STATEFUL_SERVICE_PORT");
    }
}
