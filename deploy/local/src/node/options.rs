//! Options of a node.

use super::backoff;
use super::proxy::ServiceTable;
use crate::Range;
use crate::usage::UsageTable;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// Options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Name of the Node object.
    pub name: String,
    /// Address of the machine in the status of pods.
    pub host_ip: IpAddr,
    /// Range of pod addresses. Every address in it must be usable on this machine.
    pub pod_cidr: Range,
    /// Addresses in `pod_cidr` that no pod gets.
    pub reserved: Vec<Ipv4Addr>,
    /// Range from which the API server allocates ClusterIPs. It must not overlap `pod_cidr`.
    pub service_cidr: Range,
    /// Folder for logs; created if it does not exist.
    pub work_dir: PathBuf,
    /// Also run pods of the default scheduler. Use it only if no scheduler runs.
    pub default_scheduler: bool,
    /// Maximum number of running pods; other pods wait.
    pub pods_max: usize,
    /// First and longest delay between restarts of a container.
    pub restart_backoff: (Duration, Duration),
    /// Receives the addresses at which Services can be reached.
    pub services: ServiceTable,
    /// Receives the function that measures containers.
    pub usage: UsageTable,
}

impl NodeOptions {
    /// Returns the options of a node in the embedded cluster.
    pub fn new(name: impl Into<String>, pod_cidr: Range, service_cidr: Range, work_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            pod_cidr,
            reserved: Vec::new(),
            service_cidr,
            work_dir: work_dir.into(),
            default_scheduler: true,
            pods_max: super::capacity::pods_max(),
            restart_backoff: backoff::DELAYS,
            services: ServiceTable::default(),
            usage: UsageTable::default(),
        }
    }
}
