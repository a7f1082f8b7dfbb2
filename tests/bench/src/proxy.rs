//! Peers: each relays all requests to one backend over kept-alive connections, with one protocol on both sides.
//!
//! HAProxy has two threads and nginx two processes on any machine, the bare proxy one thread for each core. None logs
//! requests.

use crate::cluster::{self, TestActivator, until};
use crate::process::{self, Process};
use crate::settings::Settings;
use common::backend::Protocol;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use tempfile::TempDir;

const REVISION: &str = "warm";

/// Destination of a load.
pub(crate) struct Target {
    /// Name for display.
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// Process whose CPU time counts. `None` for the backend itself.
    process: Option<Owner>,
    _files: Option<TempDir>,
}

enum Owner {
    Process(Process),
    Activator(Box<TestActivator>),
}

impl Target {
    pub(crate) fn process(&self) -> Option<&Process> {
        self.process.as_ref().map(|owner| match owner {
            Owner::Process(process) => process,
            Owner::Activator(activator) => &activator.process,
        })
    }

    /// Returns the host of all requests. Only the activator reads it.
    pub(crate) fn host() -> String {
        cluster::host(REVISION)
    }

    /// Returns the backend itself, without a proxy.
    pub(crate) fn direct(address: SocketAddr) -> Self {
        Self { name: "direct", address, process: None, _files: None }
    }

    pub(crate) async fn activator(
        settings: &Settings,
        protocol: Protocol,
        backend: SocketAddr,
    ) -> anyhow::Result<Self> {
        let activator = TestActivator::start(settings).await?;
        activator.warm(REVISION, protocol, backend).await?;
        let address = if protocol == Protocol::H2c { activator.h2c } else { activator.http1 };
        Ok(Self { name: "activator", address, process: Some(Owner::Activator(Box::new(activator))), _files: None })
    }

    /// Starts HAProxy.
    pub(crate) async fn haproxy(protocol: Protocol, backend: SocketAddr) -> anyhow::Result<Self> {
        let proto = if protocol == Protocol::H2c { "proto h2" } else { "" };
        Self::haproxy_with("http", proto, backend).await
    }

    /// Starts HAProxy in TCP mode. By default, it copies bytes instead of letting the kernel move them.
    pub(crate) async fn haproxy_tcp(backend: SocketAddr) -> anyhow::Result<Self> {
        Self::haproxy_with("tcp", "", backend).await
    }

    /// Starts HAProxy in this mode, with the option `proto` on both sides.
    async fn haproxy_with(mode: &str, proto: &str, backend: SocketAddr) -> anyhow::Result<Self> {
        let address = free_address()?;
        let text = format!(
            "global\n nbthread {THREADS}\n maxconn 6000\n\
             defaults\n mode {mode}\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
             listen all\n bind {address} {proto}\n server backend {backend} {proto}\n"
        );
        let (files, path) = config_file("haproxy.cfg", &text)?;
        let process = Process::start(process::HAPROXY.path()?, ["-db", "-f", &path], &[])?;
        Self::once_listening("haproxy", address, process, Some(files)).await
    }

    /// Starts an activator that listens on a port that belongs to one workload.
    pub(crate) async fn activator_tcp(backend: SocketAddr) -> anyhow::Result<Self> {
        let (process, address) = Process::server(&["tcp-activator", &backend.to_string()])?;
        Self::once_listening("activator", address, process, None).await
    }

    /// Starts nginx, for HTTP/1.1 only: it does not use HTTP/2 to backends.
    pub(crate) async fn nginx(backend: SocketAddr) -> anyhow::Result<Self> {
        let address = free_address()?;
        let text = format!(
            "worker_processes {THREADS};\nerror_log /dev/null;\npid nginx.pid;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n access_log off;\n keepalive_requests 100000000;\n \
             upstream backend {{ server {backend}; keepalive 128; keepalive_requests 100000000; }}\n \
             server {{ listen {address}; location / {{ proxy_pass http://backend; proxy_http_version 1.1; \
             proxy_set_header Connection \"\"; proxy_set_header Host $host; }} }}\n}}\n"
        );
        let (files, path) = config_file("nginx.conf", &text)?;
        let prefix = files.path().display().to_string();
        let args = ["-p", &prefix, "-c", &path, "-g", "daemon off;"];
        let process = Process::start(process::NGINX.path()?, args, &[])?;
        Self::once_listening("nginx", address, process, Some(files)).await
    }

    /// Starts hyper's server and its pooled client, with nothing in between.
    pub(crate) async fn bare(protocol: Protocol, backend: SocketAddr) -> anyhow::Result<Self> {
        let (backend, h2c) = (backend.to_string(), (protocol == Protocol::H2c).then_some("--h2c"));
        let args: Vec<&str> = ["bare", &backend].into_iter().chain(h2c).collect();
        let (process, address) = Process::server(&args)?;
        Self::once_listening("bare hyper", address, process, None).await
    }

    /// Waits until the target accepts connections.
    async fn once_listening(
        name: &'static str,
        address: SocketAddr,
        process: Process,
        files: Option<TempDir>,
    ) -> anyhow::Result<Self> {
        until(name, async || tokio::net::TcpStream::connect(address).await.is_ok()).await?;
        Ok(Self { name, address, process: Some(Owner::Process(process)), _files: files })
    }
}

/// Number of HAProxy's threads, and of nginx's processes.
const THREADS: usize = 2;

/// Returns an address that was just free.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn config_file(name: &str, text: &str) -> anyhow::Result<(TempDir, String)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(name);
    std::fs::write(&path, text)?;
    Ok((folder, path.display().to_string()))
}
