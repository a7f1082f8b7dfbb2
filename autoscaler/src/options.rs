//! Settings of the autoscaler, and how they are read from the environment.

use crate::api_rate;
use crate::dashboard::Settings as Dashboard;
use crate::install_kind::InstallKind;
use crate::scale::OnScale;
use crate::stateful_set::StatefulSet;
use common::names;
use common::write_rate::Rate;
use common_runtime::admission::Demand;
use common_runtime::credential::TokenFile;
use common_runtime::environment::{EnvironmentError, cluster_domain, optional, parsed, required};
use common_runtime::process::ProcessOptions;
use common_runtime::stat_tls::StatTls;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Settings of one autoscaler process, fixed for its life. Settings that may change at run time are in ConfigMaps.
#[derive(Clone)]
pub struct Options {
    /// Name of the process's own pod: first half of its identity on leases.
    pub pod_name: String,
    /// Address of its pod: second half of its identity, and the address to which other autoscalers forward stats.
    pub pod_ip: IpAddr,
    /// Namespace of ConfigMaps, leases and the activators.
    pub system_namespace: String,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// Front end of the install.
    pub install: InstallKind,
    /// Address of the stat server. Upstream: port 8080.
    pub stat_listen: SocketAddr,
    /// Address of the admin port for metrics and explanations; `None`: no admin port.
    pub admin: Option<SocketAddr>,
    /// Membership in a StatefulSet; none: revisions are shared by leases.
    pub stateful_set: Option<StatefulSet>,
    /// Options that activator and autoscaler have in common.
    pub process: ProcessOptions,
    /// Tokens that stat senders must present, and the token that we present to other autoscalers.
    pub stat_tokens: StatTokens,
    /// TLS for stat connections; none: plain TCP.
    pub stat_tls: Option<StatTls>,
    /// Write rate to the API server. Default: the rate of upstream's equivalent processes.
    pub api_rate: Rate,
    /// Dashboard of all workloads; none: not served. Standalone only.
    pub dashboard: Option<Dashboard>,
    /// Callback for every replicas patch that was accepted.
    pub on_scale: Option<OnScale>,
}

/// Tokens on stat connections. By default none is presented or required, as upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatTokens {
    /// Token presented to other autoscalers.
    pub own: Option<TokenFile>,
    /// Requirement on the tokens of stat senders.
    pub required: Option<Demand>,
}

impl Options {
    /// Returns defaults for everything but the pod's identity and the kind of install: upstream's stat port on all
    /// addresses, no admin port, system namespace `knative-serving`, domain `cluster.local`, no StatefulSet, no
    /// tokens, no TLS.
    pub fn new(pod_name: impl Into<String>, pod_ip: IpAddr, install: InstallKind) -> Self {
        Self {
            pod_name: pod_name.into(),
            pod_ip,
            system_namespace: names::SYSTEM_NAMESPACE.to_owned(),
            cluster_domain: "cluster.local".to_owned(),
            api_rate: install.profile().api_rate,
            install,
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
    /// [`ProcessOptions`]) and our own:
    ///
    /// - `ZEROSCALE_MODE`, `ZEROSCALE_HPA` (`engine` or `off`).
    /// - `ZEROSCALE_LISTEN_ADDRESS`, for machines on which several planes share the ports. Default: all addresses.
    /// - `ZEROSCALE_STAT_TOKEN_FILE`: the token presented to other autoscalers.
    /// - `ZEROSCALE_STAT_AUDIENCE`: the required audience of stat senders' tokens ([`common_runtime::admission`]). If
    ///   unset, no token is required.
    /// - `ZEROSCALE_STAT_TLS_*`: see [`common_runtime::stat_tls`].
    /// - `ZEROSCALE_DASHBOARD_*` and `ZEROSCALE_POD_HOUR_PRICE`: see [`crate::dashboard::settings`].
    ///
    /// `get` looks up one variable; [`common_runtime::environment::process`] reads the process's own.
    ///
    /// # Errors
    /// A required variable is missing, or one cannot be parsed; the error names it, its value and the rule.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let pod_name = required(&get, "POD_NAME", "the pod's own name, by the downward API")?;
        let pod_ip = required(&get, "POD_IP", "the pod's own address, by the downward API")?;
        let pod_ip = pod_ip.parse().map_err(|_| EnvironmentError::new("POD_IP", &*pod_ip, "must be an IP address"))?;
        let system_namespace = required(&get, "SYSTEM_NAMESPACE", "the namespace of config maps and leases")?;
        let cluster_domain = optional(&get, "CLUSTER_DOMAIN").unwrap_or_else(cluster_domain);
        let install = InstallKind::from_env(&get)?;
        let api_rate = api_rate::from_env(&get, install.profile().api_rate)?;
        let all = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let listen = parsed(&get, "ZEROSCALE_LISTEN_ADDRESS", all, "must be an IP address")?;
        let metrics_host = parsed(&get, "METRICS_PROMETHEUS_HOST", listen, "must be an IP address")?;
        let metrics = parsed(&get, "METRICS_PROMETHEUS_PORT", 9090, "must be a port")?;
        let stat_tokens = StatTokens::from_env(&get, install.profile().account, &system_namespace);
        let stat_tls = StatTls::from_env(&get, &system_namespace)?;
        let dashboard = match install.profile().has_page {
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
            ..Self::new(pod_name, pod_ip, install)
        })
    }
}

impl StatTokens {
    /// Reads the tokens' settings. `account` is the autoscalers' own ServiceAccount.
    fn from_env(get: &impl Fn(&str) -> Option<String>, account: &str, namespace: &str) -> Self {
        let given = |name: &str| optional(get, name);
        let required = given("ZEROSCALE_STAT_AUDIENCE");
        let required = required.map(|audience| Demand::of_planes(&audience, namespace, account));
        Self { own: given("ZEROSCALE_STAT_TOKEN_FILE").map(TokenFile::new), required }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("pod_name", &self.pod_name)
            .field("pod_ip", &self.pod_ip)
            .field("system_namespace", &self.system_namespace)
            .field("cluster_domain", &self.cluster_domain)
            .field("install", &self.install)
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
        assert_eq!(format!("{:?}", options.install), "Knative");
        assert_eq!(options.stat_listen.port(), 8080);
    }

    #[test]
    fn missing_and_invalid_variables_are_named() {
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
