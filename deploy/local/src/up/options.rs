//! Options of `local up`.

use autoscaler::dashboard::Price;
use clap::{Args, Parser};
use common_runtime::namespaces::Namespaces;
use hpa::options::sync_period;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Time for which draining activators keep accepting requests. Routes on loopback converge almost at once.
const LINGER: Duration = Duration::from_millis(200);

/// Options of one embedded cluster.
#[derive(Args, Clone, Debug)]
pub struct UpOptions {
    /// Manifests to apply once the cluster runs, in this order; `-` reads standard input.
    ///
    /// If they contain neither a ZeroScaler nor the label `zeroscale.dev/enabled`, each Deployment behind one of their
    /// Services gets a ZeroScaler with defaults, so that it scales to zero without requests. With `--external`, each
    /// such StatefulSet gets one too. Without `--external`, StatefulSets, DaemonSets, Jobs and CronJobs do not run.
    #[arg(value_name = "FILE")]
    pub manifests: Vec<PathBuf>,
    /// Address of the ingress; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub ingress: SocketAddr,
    /// Address of the API server; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub api: SocketAddr,
    /// Address of the dashboard; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub dashboard: SocketAddr,
    /// Open the dashboard in $BROWSER or with xdg-open.
    #[arg(long)]
    pub open: bool,
    /// Price of a pod-hour, such as "0.012 EUR": the dashboard then shows savings as money too.
    #[arg(long, value_name = "PRICE")]
    pub pod_hour_price: Option<Price>,
    /// Number of activators.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub activators: u16,
    /// Number of autoscalers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=10))]
    pub autoscalers: u16,
    /// File with a config-autoscaler ConfigMap, or just its data as a map.
    #[arg(long, value_name = "FILE")]
    pub config_autoscaler: Option<PathBuf>,
    /// File for the kubeconfig; one of another cluster is not overwritten [default: a new file in the temporary
    /// folder].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address range of pods [default: a free range of loopback].
    #[arg(long, value_name = "RANGE")]
    pub pod_cidr: Option<crate::Range>,
    /// Address range of Services [default: a free range of loopback].
    #[arg(long, value_name = "RANGE")]
    pub service_cidr: Option<crate::Range>,
    /// Use the API server and the controllers of this kubeconfig instead of embedded ones.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["api", "kubeconfig"])]
    pub external: Option<PathBuf>,
    /// Interval between two evaluations of a HorizontalPodAutoscaler.
    #[arg(long, default_value = "15s", value_parser = sync_period)]
    pub hpa_sync_period: Duration,
    /// Stat server for the activators [default: the autoscaler's Service].
    #[arg(long, value_name = "URL", hide = true)]
    pub stat_url: Option<String>,
    /// Time for which draining activators keep accepting requests, while routes change.
    #[arg(skip = LINGER)]
    pub linger: Duration,
    /// Namespaces of workloads, for which the roles are created.
    #[arg(skip)]
    pub namespaces: Namespaces,
    /// Called for every request to the embedded API server.
    #[arg(skip)]
    pub audit: Option<crate::api::Audit>,
}

impl Default for UpOptions {
    /// Returns options for tests: free ports, one plane of each kind, no manifests.
    fn default() -> Self {
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            options: UpOptions,
        }
        Alone::parse_from(["up", "--ingress", "127.0.0.1:0"]).options
    }
}

/// Options of `local api`.
#[derive(Args, Clone, Debug)]
pub struct ApiArgs {
    /// Address of the API server; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(super) api: SocketAddr,
    /// File for the kubeconfig; one of another cluster is not overwritten.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: PathBuf,
    /// Address range of Services [default: a free range of loopback].
    #[arg(long, value_name = "RANGE")]
    pub(super) service_cidr: Option<crate::Range>,
    /// Interval between two evaluations of a HorizontalPodAutoscaler.
    #[arg(long, default_value = "15s", value_parser = sync_period)]
    pub(super) hpa_sync_period: Duration,
}
