//! What `local up` can be told.

use autoscaler::dashboard::Price;
use clap::{Args, Parser};
use common_runtime::namespaces::Namespaces;
use hpa::options::sync_period;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long activators accept requests after they were asked to go: loopback needs hardly any time to converge.
const LINGER: Duration = Duration::from_millis(200);

/// Options of one embedded cluster.
#[derive(Args, Clone, Debug)]
pub struct UpOptions {
    /// Manifests to apply once the cluster runs, in this order; `-` reads standard input.
    ///
    /// Where they hold neither a ZeroScaler nor the label `zeroscale.dev/enabled`, each Deployment that a Service of theirs
    /// leads to is given a ZeroScaler with defaults, so that it sleeps while nobody calls it; with `--external` each
    /// StatefulSet, too. Without `--external` nothing runs StatefulSets, DaemonSets, Jobs and CronJobs.
    #[arg(value_name = "FILE")]
    pub manifests: Vec<PathBuf>,
    /// Where the ingress listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub ingress: SocketAddr,
    /// Where the API server listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub api: SocketAddr,
    /// Where the page of all workloads is; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub dashboard: SocketAddr,
    /// Opens that page, in $BROWSER or by xdg-open.
    #[arg(long)]
    pub open: bool,
    /// What a pod costs in an hour, such as "0.012 EUR": that page then says as money, too, what sleeping has saved.
    #[arg(long, value_name = "PRICE")]
    pub pod_hour_price: Option<Price>,
    /// How many activators.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub activators: u16,
    /// How many autoscalers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=10))]
    pub autoscalers: u16,
    /// A config-autoscaler ConfigMap, or just its data as a map.
    #[arg(long, value_name = "FILE")]
    pub config_autoscaler: Option<PathBuf>,
    /// Where to write the kubeconfig, though not over one of another cluster [default: a new file in the temporary folder].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Addresses of pods [default: a free range of loopback].
    #[arg(long, value_name = "RANGE")]
    pub pod_cidr: Option<crate::Range>,
    /// Addresses of Services [default: a free range of loopback].
    #[arg(long, value_name = "RANGE")]
    pub service_cidr: Option<crate::Range>,
    /// Use the API server of this kubeconfig, and the controllers it has, instead of embedded ones.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["api", "kubeconfig"])]
    pub external: Option<PathBuf>,
    /// Time between two looks at a HorizontalPodAutoscaler.
    #[arg(long, default_value = "15s", value_parser = sync_period)]
    pub hpa_sync_period: Duration,
    /// The stat server that activators report to [default: the autoscaler's Service].
    #[arg(long, value_name = "URL", hide = true)]
    pub stat_url: Option<String>,
    /// How long activators accept requests after they were asked to go, which is what routes may take to change.
    #[arg(skip = LINGER)]
    pub linger: Duration,
    /// Where workloads are; the roles are made for these.
    #[arg(skip)]
    pub namespaces: Namespaces,
    /// Told of every request to the embedded API server.
    #[arg(skip)]
    pub audit: Option<crate::api::Audit>,
}

impl Default for UpOptions {
    /// As in tests: every port free, one of each plane, no manifests.
    fn default() -> Self {
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            options: UpOptions,
        }
        Alone::parse_from(["up", "--ingress", "127.0.0.1:0"]).options
    }
}

/// Options of an API server alone.
#[derive(Args, Clone, Debug)]
pub struct ApiArgs {
    /// Where it listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(super) api: SocketAddr,
    /// Where to write the kubeconfig, though not over one of another cluster.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: PathBuf,
    /// Addresses of Services [default: a free range of loopback].
    #[arg(long, value_name = "RANGE")]
    pub(super) service_cidr: Option<crate::Range>,
    /// Time between two looks at a HorizontalPodAutoscaler.
    #[arg(long, default_value = "15s", value_parser = sync_period)]
    pub(super) hpa_sync_period: Duration,
}
