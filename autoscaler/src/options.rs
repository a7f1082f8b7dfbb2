//! What an autoscaler must be told, and how the environment tells it.

use crate::api_rate;
use crate::dashboard::Settings as Dashboard;
use crate::front_end::FrontEnd;
use crate::scale::OnScale;
use crate::stateful_set::StatefulSet;
use common::names;
use common::write_rate::Rate;
use common_runtime::admission::Demand;
use common_runtime::credential::TokenFile;
use common_runtime::environment::{EnvironmentError, cluster_domain, parsed, required};
use common_runtime::process::ProcessOptions;
use common_runtime::stat_tls::StatTls;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Settings of one autoscaler process, fixed for its life. What may change while it runs is in the ConfigMaps.
#[derive(Clone)]
pub struct Options {
    /// Its pod's name: first half of its identity on leases.
    pub pod_name: String,
    /// Its pod's address: second half of its identity, and where other autoscalers forward stats to.
    pub pod_ip: IpAddr,
    /// Where ConfigMaps, leases and the activators live.
    pub system_namespace: String,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// How it is installed.
    pub front_end: FrontEnd,
    /// Where stats come in. Upstream: port 8080.
    pub stat_listen: SocketAddr,
    /// Where metrics and explanations are served; `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// Which member of a StatefulSet it is; none: revisions are shared by leases.
    pub stateful_set: Option<StatefulSet>,
    /// What both planes are told alike.
    pub process: ProcessOptions,
    /// Who may send stats, and what proves to other autoscalers that we may.
    pub stat_tokens: StatTokens,
    /// TLS on the way of stats; none: plain TCP.
    pub stat_tls: Option<StatTls>,
    /// How fast the API server is written to. Default: as fast as upstream's processes that do the same may.
    pub api_rate: Rate,
    /// The page of all workloads; none: nowhere. Standalone's alone.
    pub dashboard: Option<Dashboard>,
    /// Told of every replicas patch that was answered.
    pub on_scale: Option<OnScale>,
}

/// Tokens on the way of stats. The default neither shows nor demands any, as upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatTokens {
    /// What is shown to other autoscalers.
    pub own: Option<TokenFile>,
    /// What is demanded of whoever sends stats.
    pub demand: Option<Demand>,
}

impl Options {
    /// Defaults for everything but the pod's identity: upstream's stat port on all addresses and no admin port, system
    /// namespace `knative-serving`, domain `cluster.local`, no StatefulSet, no tokens, no TLS.
    pub fn new(pod_name: impl Into<String>, pod_ip: IpAddr, front_end: FrontEnd) -> Self {
        Self {
            pod_name: pod_name.into(),
            pod_ip,
            system_namespace: names::SYSTEM_NAMESPACE.to_owned(),
            cluster_domain: "cluster.local".to_owned(),
            api_rate: front_end.profile().api_rate,
            front_end,
            stat_listen: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), names::STAT_PORT),
            admin: None,
            stateful_set: None,
            process: ProcessOptions::default(),
            stat_tokens: StatTokens::default(),
            stat_tls: None,
            dashboard: None,
            on_scale: None,
        }
    }

    /// Reads Knative's environment variables (`POD_NAME`, `POD_IP`, `SYSTEM_NAMESPACE`, `CLUSTER_DOMAIN`,
    /// `METRICS_PROMETHEUS_HOST` and `_PORT`, `STATEFUL_*`, `KUBE_API_QPS` and `_BURST`, and those of
    /// [`ProcessOptions`]), `ZEROSCALE_MODE`, `ZEROSCALE_HPA` (`engine` or `off`), and `ZEROSCALE_LISTEN_ADDRESS` for
    /// machines where several planes share the ports (default: all addresses). `ZEROSCALE_STAT_TOKEN_FILE` is shown to
    /// other autoscalers; `ZEROSCALE_DASHBOARD_*` and `ZEROSCALE_POD_HOUR_PRICE` are in [`crate::dashboard::settings`];
    /// `ZEROSCALE_STAT_AUDIENCE`, if set, is what tokens of all senders of stats must be for
    /// ([`common_runtime::admission`]); `ZEROSCALE_STAT_TLS_*` are in [`common_runtime::stat_tls`]. `get` looks one up;
    /// [`common_runtime::environment::process`] asks the process's own.
    ///
    /// # Errors
    /// A required variable is missing, or one cannot be parsed; the error names it, its value and the rule.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let pod_name = required(&get, "POD_NAME", "the pod's own name, by the downward API")?;
        let pod_ip = required(&get, "POD_IP", "the pod's own address, by the downward API")?;
        let pod_ip = pod_ip.parse().map_err(|_| EnvironmentError::new("POD_IP", &*pod_ip, "must be an IP address"))?;
        let system_namespace = required(&get, "SYSTEM_NAMESPACE", "the namespace of config maps and leases")?;
        let cluster_domain = get("CLUSTER_DOMAIN").filter(|domain| !domain.is_empty()).unwrap_or_else(cluster_domain);
        let front_end = FrontEnd::from_env(&get)?;
        let api_rate = api_rate::from_env(&get, front_end.profile().api_rate)?;
        let all = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let listen = parsed(&get, "ZEROSCALE_LISTEN_ADDRESS", all, "must be an IP address")?;
        let metrics_host = parsed(&get, "METRICS_PROMETHEUS_HOST", listen, "must be an IP address")?;
        let metrics = parsed(&get, "METRICS_PROMETHEUS_PORT", 9090, "must be a port")?;
        let stat_tokens = StatTokens::from_env(&get, front_end.profile().account, &system_namespace);
        let stat_tls = StatTls::from_env(&get, &system_namespace)?;
        let dashboard = match front_end.profile().has_page {
            true => Dashboard::from_env(&get, listen)?,
            false => None,
        };
        Ok(Self {
            system_namespace,
            cluster_domain,
            stat_listen: SocketAddr::new(listen, names::STAT_PORT),
            admin: Some(SocketAddr::new(metrics_host, metrics)),
            stateful_set: StatefulSet::from_env(&get)?,
            process: ProcessOptions::from_env(&get)?,
            stat_tokens,
            stat_tls,
            api_rate,
            dashboard,
            ..Self::new(pod_name, pod_ip, front_end)
        })
    }

    /// Returns the token that activators are shown. None where none are demanded: an activator knows no plane by its token
    /// then. None with TLS either: a secret that goes over TLS elsewhere is not shown in plain.
    pub(crate) fn port_token(&self) -> Option<TokenFile> {
        let is_shown = self.stat_tokens.demand.is_some() && self.stat_tls.is_none();
        self.stat_tokens.own.clone().filter(|_| is_shown)
    }
}

impl StatTokens {
    /// `account` is the autoscalers' own.
    fn from_env(get: &impl Fn(&str) -> Option<String>, account: &str, namespace: &str) -> Self {
        let given = |name: &str| get(name).filter(|value| !value.is_empty());
        let demand = given("ZEROSCALE_STAT_AUDIENCE");
        let demand = demand.map(|audience| Demand::of_planes(&audience, namespace, account));
        Self { own: given("ZEROSCALE_STAT_TOKEN_FILE").map(TokenFile::new), demand }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("pod_name", &self.pod_name)
            .field("pod_ip", &self.pod_ip)
            .field("system_namespace", &self.system_namespace)
            .field("cluster_domain", &self.cluster_domain)
            .field("front_end", &self.front_end)
            .field("stat_listen", &self.stat_listen)
            .field("admin", &self.admin)
            .field("stateful_set", &self.stateful_set)
            .field("stat_tokens", &self.stat_tokens)
            .field("stat_tls", &self.stat_tls)
            .field("api_rate", &self.api_rate)
            .field("dashboard", &self.dashboard)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn read(pairs: &[(&str, &str)]) -> Result<Options, EnvironmentError> {
        let map: BTreeMap<_, _> = pairs.iter().copied().collect();
        Options::from_env(|name| map.get(name).map(|value| (*value).to_owned()))
    }

    #[test]
    fn knatives_variables_are_enough() {
        let options = read(&[("POD_NAME", "as-1"), ("POD_IP", "10.0.0.7"), ("SYSTEM_NAMESPACE", "knative-serving")])
            .expect("complete");
        assert_eq!(format!("{:?}", options.front_end), "Knative");
        assert_eq!(options.stat_listen.port(), 8080);
    }

    /// Goal: an activator without an audience is never shown a token, which it would not look at.
    #[test]
    fn a_token_is_shown_where_one_is_demanded() {
        let own = ("ZEROSCALE_STAT_TOKEN_FILE", "/token");
        let audience = ("ZEROSCALE_STAT_AUDIENCE", "zeroscale.dev/stats");
        for (pairs, expected) in [(&[own, audience][..], true), (&[own], false), (&[audience], false), (&[], false)] {
            let needed = [("POD_NAME", "as-1"), ("POD_IP", "10.0.0.7"), ("SYSTEM_NAMESPACE", "zeroscale")];
            let options = read(&[&needed, pairs].concat()).expect("complete");
            assert_eq!(options.port_token().is_some(), expected, "{pairs:?}");
        }
    }

    /// What a process writes on leases is made of the first two.
    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let complete = [("POD_NAME", "as-1"), ("POD_IP", "10.0.0.7"), ("SYSTEM_NAMESPACE", "ns")];
        for missing in 0..complete.len() {
            let mut rest = complete.to_vec();
            let (name, _) = rest.remove(missing);
            let error = read(&rest).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
        }
        let error = read(&[("POD_NAME", "a"), ("POD_IP", "x"), ("SYSTEM_NAMESPACE", "ns")]).expect_err("bad address");
        assert_eq!(error.to_string(), "environment variable POD_IP=\"x\": must be an IP address");
        let error = read(&[&complete[..], &[("ZEROSCALE_LISTEN_ADDRESS", "all")]].concat()).expect_err("bad address");
        assert!(error.to_string().contains("ZEROSCALE_LISTEN_ADDRESS"), "{error}");
    }
}
