//! Start-up options of an activator.
//!
//! In a cluster they come from Knative's environment variables, with Knative's names and defaults, and from a few of
//! our own with the prefix `ZEROSCALE_`. An embedding program fills in the struct. Knative's activator listens on all
//! addresses; `ZEROSCALE_LISTEN_ADDRESS` is for machines on which several planes share the ports.
//!
//! # Not here
//!
//! Configuration from ConfigMaps, including metrics and traces, is in [`crate::Configs`]. The caller creates the
//! Kubernetes client, from `KUBECONFIG` or the pod's service account.

use crate::config::clients::{self, ClientOptions};
use crate::discovery::front_end::FrontEnd;
use crate::discovery::knative::Knative;
use crate::discovery::standalone::Standalone;
use crate::metrics::cold_start::OnColdStart;
use activator_net::WorkerRuntimes;
use common::names;
use common_runtime::credential::TokenFile;
use common_runtime::environment::{self, Cidr, EnvironmentError, Mode, optional};
use common_runtime::namespaces::Namespaces;
use common_runtime::process::ProcessOptions;
use common_runtime::stat_tls::{self, StatTrust};
use common_runtime::tls::Parameters;
use common_runtime::tls::files::Pair;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// Start-up options of an activator.
#[derive(Clone)]
pub struct Options {
    /// Name of the pod: identity in stats and attestations.
    pub pod_name: String,
    /// Address of the pod, as in EndpointSlices. It determines this activator's index among its siblings.
    pub pod_ip: IpAddr,
    /// Namespace of the control plane.
    pub system_namespace: String,
    /// DNS domain of the cluster, such as `cluster.local`.
    pub cluster_domain: String,
    /// Kind of install: beside Knative's own components, or standalone.
    pub mode: Mode,
    /// First data listener. Both speak HTTP/1.1 and h2c; port 0 takes a free one.
    pub http1: SocketAddr,
    /// Second data listener, like the first.
    pub h2c: SocketAddr,
    /// Additional data listener. Other activators of this process may accept from it as well.
    pub entry: Option<Arc<TcpListener>>,
    /// Address of the TLS listener, used if system-internal TLS is on.
    pub https: SocketAddr,
    /// Versions, suites and curves of the TLS listener: `ACTIVATOR_TLS_*`.
    pub tls: Parameters,
    /// Address of the metrics endpoint; `None` disables it.
    pub admin: Option<SocketAddr>,
    /// URL of the autoscaler's stat server: `ws://host:port`, or `wss://host:port` with [`Options::stat_trust`].
    pub stat_url: String,
    /// File with the token that identifies this activator to the autoscaler, if the autoscaler requires one.
    pub stat_token: Option<TokenFile>,
    /// Requirements for the autoscaler's certificate; `None` sends stats unencrypted.
    pub stat_trust: Option<StatTrust>,
    /// Audience of the tokens that other activators must present to share limits with this one. This activator presents
    /// [`Options::stat_token`] to them.
    pub stat_audience: Option<String>,
    /// Certificate that this activator presents to other activators, if stats use TLS. They must present a similar one.
    pub sibling_tls: Option<Pair>,
    /// Shares pods with a hard limit with other activators that have this option, instead of assigning each a part of
    /// the pods. `ZEROSCALE_SHARE_PODS`, on unless it is `false`.
    pub share_pods: bool,
    /// Namespaces with workloads, in standalone mode.
    pub namespaces: Namespaces,
    /// Peers whose `Knative-Serving-*` headers select the revision in standalone mode. Knative mode trusts every peer.
    pub trust_revision_headers: Vec<Cidr>,
    /// Peers whose forwarding headers are kept and extended, in standalone mode. The headers of other peers are
    /// replaced. Peers in [`Options::trust_revision_headers`] are trusted too.
    pub trusted_proxies: Vec<Cidr>,
    /// Bytes of memory that the process may use; requests and connections get half of it. `None`: no limit in bytes.
    pub memory_limit: Option<u64>,
    /// Time after the shutdown signal in which requests are still accepted while probes already fail, so that every
    /// peer stops sending first.
    pub linger: Duration,
    /// Longest wait for requests and tunnels in flight after [`Options::linger`].
    pub drain: Duration,
    /// Maximum number of idle connections to one pod address.
    pub idle_connections_per_pod: usize,
    /// Maximum number of idle connections to all pods together.
    pub idle_connections: usize,
    /// Limits on client connections.
    pub clients: ClientOptions,
    /// Knative mode: longest wait for the response to a probe.
    pub probe_timeout: Duration,
    /// Options that activator and autoscaler share.
    pub process: ProcessOptions,
    /// Callback for every cold start.
    pub on_cold_start: Option<OnColdStart>,
    /// Worker threads for client connections; `None` uses the common runtime.
    pub workers: Option<Arc<WorkerRuntimes>>,
}

impl Options {
    /// Returns defaults for everything but the pod's identity: Knative's ports on all addresses, system namespace
    /// `knative-serving`, domain `cluster.local`.
    pub fn new(pod_name: impl Into<String>, pod_ip: IpAddr, mode: Mode) -> Self {
        let (namespace, domain) = (names::SYSTEM_NAMESPACE.to_owned(), "cluster.local".to_owned());
        Self {
            pod_name: pod_name.into(),
            pod_ip,
            stat_url: stat_url("ws", &namespace, &domain),
            stat_token: None,
            stat_trust: None,
            stat_audience: None,
            sibling_tls: None,
            share_pods: true,
            system_namespace: namespace,
            cluster_domain: domain,
            mode,
            http1: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), names::ACTIVATOR_HTTP1_PORT),
            h2c: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), names::ACTIVATOR_H2C_PORT),
            entry: None,
            https: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), names::HTTPS_PORT),
            tls: Parameters::default(),
            namespaces: Namespaces::default(),
            admin: None,
            trust_revision_headers: Vec::new(),
            trusted_proxies: PRIVATE_NETWORKS.split(' ').filter_map(|network| network.parse().ok()).collect(),
            memory_limit: None,
            linger: Duration::from_secs(15),
            drain: Duration::from_secs(540),
            idle_connections_per_pod: 100,
            idle_connections: 1000,
            clients: ClientOptions::new(None),
            probe_timeout: Duration::from_millis(300),
            process: ProcessOptions::default(),
            on_cold_start: None,
            workers: None,
        }
    }

    /// Reads Knative's environment variables and ours through `get`.
    ///
    /// # Errors
    /// A variable is missing or does not parse. The error names the variable, its value and the rule.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let pod_name = environment::required(get, "POD_NAME", "stats contain the name of the activator's pod")?;
        let purpose = "the address of the pod determines its position among the activators";
        environment::required(get, "POD_IP", purpose)?;
        let pod_ip = environment::parsed(get, "POD_IP", IpAddr::from(Ipv4Addr::UNSPECIFIED), "must be an IP address")?;
        let mode = environment::parsed(get, "ZEROSCALE_MODE", Mode::Knative, "must be `standalone` or `knative`")?;
        let mut options = Self::new(pod_name, pod_ip, mode);
        options.process = ProcessOptions::from_env(get)?;
        options.system_namespace =
            environment::required(get, "SYSTEM_NAMESPACE", "it must name the namespace of the control plane")?;
        options.cluster_domain = optional(get, "CLUSTER_DOMAIN").unwrap_or_else(environment::cluster_domain);
        options.namespaces = Namespaces::from_env(mode, get)?;
        options.stat_trust = StatTrust::from_env(get, &options.system_namespace)?;
        let scheme = if options.stat_trust.is_some() { "wss" } else { "ws" };
        options.stat_url = optional(get, "ZEROSCALE_STAT_URL")
            .unwrap_or_else(|| stat_url(scheme, &options.system_namespace, &options.cluster_domain));
        options.stat_token = optional(get, "ZEROSCALE_STAT_TOKEN_FILE").map(TokenFile::new);
        options.stat_audience = optional(get, "ZEROSCALE_STAT_AUDIENCE");
        options.sibling_tls = stat_tls::sibling_pair(get)?;
        options.share_pods = environment::parsed(get, "ZEROSCALE_SHARE_PODS", true, "must be `true` or `false`")?;
        let all = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        let listen = environment::parsed(get, "ZEROSCALE_LISTEN_ADDRESS", all, "must be an IP address")?;
        options.http1.set_ip(listen);
        options.h2c.set_ip(listen);
        options.https.set_ip(listen);
        options.tls = Parameters::from_env(get, "ACTIVATOR_TLS")?;
        let port = environment::parsed(get, "METRICS_PROMETHEUS_PORT", 9090_u16, "must be a port")?;
        let host = environment::parsed(get, "METRICS_PROMETHEUS_HOST", listen, "must be an IP address")?;
        options.admin = Some(SocketAddr::new(host, port));
        options.idle_connections_per_pod =
            environment::parsed(get, "MAX_IDLE_PROXY_CONNS_PER_HOST", 100, "must be a number of connections")?;
        options.idle_connections =
            environment::parsed(get, "MAX_IDLE_PROXY_CONNS", 1000, "must be a number of connections")?;
        let rule = "must be a positive duration in Go's syntax, such as 300ms";
        let probe_timeout = clients::duration(get, "PROBE_TIMEOUT", rule, |timeout| !timeout.is_zero())?;
        options.probe_timeout = probe_timeout.unwrap_or(options.probe_timeout);
        options.memory_limit = match optional(get, "ZEROSCALE_MEMORY_LIMIT") {
            Some(_) => Some(environment::parsed(get, "ZEROSCALE_MEMORY_LIMIT", 0, "must be a number of bytes")?),
            None => cgroup_memory_limit(),
        };
        options.clients = ClientOptions::from_env(get, options.memory_limit)?;
        options.trust_revision_headers = networks(get, "ZEROSCALE_TRUST_REVISION_HEADERS")?;
        match get("ZEROSCALE_TRUSTED_PROXIES").as_deref().map(str::trim) {
            None | Some("") => {}
            Some("none") => options.trusted_proxies = Vec::new(),
            Some(_) => options.trusted_proxies = networks(get, "ZEROSCALE_TRUSTED_PROXIES")?,
        }
        Ok(options)
    }

    pub(crate) fn front_end(&self) -> Arc<dyn FrontEnd> {
        match self.mode {
            Mode::Standalone => Arc::new(Standalone {
                system_namespace: self.system_namespace.clone(),
                namespaces: self.namespaces.clone(),
                routers: self.trust_revision_headers.clone(),
                proxies: self.trusted_proxies.clone(),
            }),
            Mode::Knative => {
                let (probe_timeout, cluster_domain) = (self.probe_timeout, self.cluster_domain.clone());
                Arc::new(Knative { probe_timeout, cluster_domain, system_namespace: self.system_namespace.clone() })
            }
        }
    }
}

/// Networks with non-public addresses: private, shared, unique local, link-local and loopback.
const PRIVATE_NETWORKS: &str = "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 169.254.0.0/16 127.0.0.0/8 \
                                fc00::/7 fe80::/10 ::1/128";

fn networks(get: &impl Fn(&str) -> Option<String>, name: &'static str) -> Result<Vec<Cidr>, EnvironmentError> {
    let list = get(name).unwrap_or_default();
    let networks = list.split(',').filter(|network| !network.is_empty()).map(|network| {
        let rule = "must be a comma-separated list of networks such as 10.0.0.0/8";
        network.trim().parse().map_err(|_| EnvironmentError::new(name, network, rule))
    });
    networks.collect()
}

/// Returns the URL of the stat server, composed as in Knative.
fn stat_url(scheme: &str, namespace: &str, domain: &str) -> String {
    format!("{scheme}://{}.{namespace}.svc.{domain}:{}", names::AUTOSCALER_SERVICE, names::STAT_PORT)
}

/// Returns the memory limit of the container (cgroup v2), if there is one.
fn cgroup_memory_limit() -> Option<u64> {
    std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn from(pairs: &[(&str, &str)]) -> Result<Options, EnvironmentError> {
        let map: BTreeMap<_, _> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Options::from_env(&|name| map.get(name).cloned())
    }

    fn with(variable: &str, value: &str) -> Result<Options, EnvironmentError> {
        from(&[&KNATIVE[..], &[(variable, value)]].concat())
    }

    const KNATIVE: [(&str, &str); 4] = [
        ("POD_NAME", "activator-0"),
        ("POD_IP", "10.0.0.7"),
        ("SYSTEM_NAMESPACE", "knative-serving"),
        ("CLUSTER_DOMAIN", "abc.com"),
    ];

    #[test]
    fn knatives_variables_are_sufficient() {
        let options = from(&KNATIVE).expect("complete");
        assert_eq!(options.mode, Mode::Knative);
        assert_eq!(options.http1.port(), 8012);
        assert_eq!(options.h2c.port(), 8013);
        assert_eq!(options.stat_url, "ws://autoscaler.knative-serving.svc.abc.com:8080");
        assert_eq!(options.admin.map(|a| a.port()), Some(9090));
        assert!(options.share_pods, "activators share limits by default");
        assert!(!with("ZEROSCALE_SHARE_PODS", "false").expect("valid").share_pods);
        let encrypted = with("ZEROSCALE_STAT_TLS_CA_FILE", "/ca.crt").expect("valid");
        assert_eq!(encrypted.stat_url, "wss://autoscaler.knative-serving.svc.abc.com:8080");
    }

    #[test]
    fn peers_in_private_networks_are_trusted_proxies_by_default() {
        let trusted = |setting: &str, peer: &str| {
            let peer: IpAddr = peer.parse().expect("an address");
            let options = with("ZEROSCALE_TRUSTED_PROXIES", setting).expect("valid");
            options.trusted_proxies.iter().any(|network| network.contains(&peer))
        };
        for peer in ["10.1.2.3", "172.31.0.1", "192.168.0.1", "100.127.0.1", "169.254.1.1", "127.0.0.2"] {
            assert!(trusted("", peer) && !trusted("none", peer) && !trusted("203.0.113.0/24", peer), "{peer}");
        }
        for peer in ["fd12::1", "fe80::1", "::1"] {
            assert!(trusted("", peer) && !trusted("none", peer), "{peer}");
        }
        for peer in ["172.32.0.1", "100.128.0.1", "192.0.2.1", "8.8.8.8", "2001:db8::1", "fec0::1", "::2"] {
            assert!(!trusted("", peer), "{peer}");
        }
        assert!(trusted("203.0.113.0/24, 10.0.0.0/8", "10.1.2.3"));
    }

    #[test]
    fn a_missing_or_invalid_variable_is_named() {
        for (missing, _) in &KNATIVE[..3] {
            let rest: Vec<_> = KNATIVE.iter().filter(|(k, _)| k != missing).copied().collect();
            let error = from(&rest).err().expect("incomplete");
            assert_eq!(error.variable, *missing);
        }
        for (variable, value) in [
            ("POD_IP", "here"),
            ("ZEROSCALE_MODE", "both"),
            ("ZEROSCALE_SHARE_PODS", "on"),
            ("ZEROSCALE_LISTEN_ADDRESS", "all"),
            ("MAX_IDLE_PROXY_CONNS", "many"),
            ("MAX_IDLE_PROXY_CONNS_PER_HOST", "-1"),
            ("ZEROSCALE_CLIENT_CONNECTIONS", "0"),
            ("PROBE_TIMEOUT", "300"),
            ("PROBE_TIMEOUT", "0s"),
            ("ACTIVATOR_TLS_MIN_VERSION", "1.1"),
            ("ZEROSCALE_STAT_TLS_NAME", "stats.example.com"),
            ("ZEROSCALE_TRUST_REVISION_HEADERS", "10.0.0.0/8,x"),
            ("ZEROSCALE_TRUSTED_PROXIES", "10.0.0.0/33"),
        ] {
            let error = with(variable, value).err().expect("rejected").to_string();
            assert!(error.contains(variable), "{error}");
        }
    }
}
