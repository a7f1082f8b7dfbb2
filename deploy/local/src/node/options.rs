//! What a node is and may do.

use super::backoff::Backoff;
use super::proxy::ServiceTable;
use crate::Range;
use crate::usage::UsageTable;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

/// What a node is and may do.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Name of the Node object.
    pub name: String,
    /// Address of the machine, as pods see it.
    pub host_ip: IpAddr,
    /// Where pods' addresses come from. Every address in it must be usable on this machine.
    pub pod_cidr: Range,
    /// Addresses in `pod_cidr` that no pod gets.
    pub reserved: Vec<Ipv4Addr>,
    /// Where the API server takes ClusterIPs from; it must not overlap `pod_cidr`.
    pub service_cidr: Range,
    /// Where logs go; created if it does not exist.
    pub work_dir: PathBuf,
    /// Also take pods of the default scheduler. Only where no scheduler runs.
    pub default_scheduler: bool,
    /// Ask the API server first whether it takes addresses of `pod_cidr` (a real one refuses loopback).
    pub check_range: bool,
    /// Pods that run at once at most; others wait.
    pub pods_max: usize,
    /// Delays between restarts of a container.
    pub restart_backoff: Backoff,
    /// Filled in with where Services can be reached.
    pub services: ServiceTable,
    /// Told how to measure what containers use; none: nobody asks.
    pub usage: Option<UsageTable>,
}

impl NodeOptions {
    /// Options of a node in the embedded cluster.
    pub fn new(name: impl Into<String>, pod_cidr: Range, service_cidr: Range, work_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            pod_cidr,
            reserved: Vec::new(),
            service_cidr,
            work_dir: work_dir.into(),
            default_scheduler: true,
            check_range: false,
            pods_max: super::capacity::pods_max(),
            restart_backoff: Backoff::default(),
            services: ServiceTable::default(),
            usage: None,
        }
    }
}
