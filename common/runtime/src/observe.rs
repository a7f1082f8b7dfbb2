//! Observability of a plane: the admin port and pushed metrics.
//!
//! | feature | controlled by | applied |
//! |---|---|---|
//! | `/metrics` on the admin port | `metrics-protocol`: 404 if it is `none` | at the start |
//! | admin port's address | `METRICS_PROMETHEUS_HOST`, `_PORT`, else `metrics-endpoint` (`prometheus`) | at the start |
//! | TLS on that port | `METRICS_PROMETHEUS_TLS_CERT`, `_KEY` and so on | at the start; files are reloaded |
//! | metrics over OTLP | `metrics-protocol`, `metrics-endpoint`, `metrics-export-interval` | at the start |
//!
//! One difference from Knative: the admin port is open for any protocol, since it also serves explanations.

use crate::admin::{self, Page};
use crate::process::ProcessOptions;
use crate::telemetry::otlp::{self, ProcessIdentity};
use crate::telemetry::{Metrics, own};
use anyhow::Context;
use common::config::{MetricsProtocol, ObservabilityConfig};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest wait for the last export.
const LAST_EXPORT: Duration = Duration::from_secs(6);

/// Diagnostic data of a process.
pub struct Diagnostics {
    /// Identity of the process.
    pub identity: ProcessIdentity,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// `config-observability`.
    pub config: watch::Receiver<Arc<ObservabilityConfig>>,
    /// Explanation pages.
    pub pages: Vec<Page>,
    /// Address of the admin port; `None`: no admin port.
    pub admin: Option<SocketAddr>,
}

/// Services that run until their token is cancelled.
pub struct Observed {
    /// Address of the admin port.
    pub admin: Option<SocketAddr>,
    pushing: Option<JoinHandle<()>>,
}

impl Diagnostics {
    /// Opens the ports and starts pushing metrics, until `shutdown`. Fails if a port cannot be bound, a certificate
    /// cannot be used, or an endpoint is malformed.
    pub async fn observe(self, process: &ProcessOptions, shutdown: CancellationToken) -> anyhow::Result<Observed> {
        let config = self.config.borrow().metrics.clone();
        let target = self.identity.attributes(&process.otel).into_iter();
        self.metrics.describe(target.map(|(key, value)| (key.replace('.', "_"), value)).collect());
        own::register(&self.metrics, &self.identity);
        let pushing = otlp::push(self.metrics.clone(), &config, &self.identity, &process.otel, shutdown.clone())?;
        let Some(listen) = self.admin else { return Ok(Observed { admin: None, pushing }) };
        let listen = match config.protocol {
            MetricsProtocol::Prometheus if !config.endpoint.is_empty() && !process.admin_is_fixed => {
                endpoint(&config.endpoint)?
            }
            _ => listen,
        };
        let tls = match &process.admin_tls {
            Some(tls) => Some(tls.config(&shutdown).await.context("TLS of the admin port")?),
            None => None,
        };
        let metrics = (config.protocol != MetricsProtocol::None).then_some(self.metrics);
        let admin = admin::Admin { metrics, pages: self.pages, tls }.serve(listen, shutdown).await?;
        Ok(Observed { admin: Some(admin), pushing })
    }
}

impl Observed {
    /// Waits a few seconds at most for the last export. Call it after the shutdown.
    pub async fn flushed(&mut self) {
        if let Some(pushing) = self.pushing.take() {
            // The result no longer matters.
            let _ = tokio::time::timeout(LAST_EXPORT, pushing).await;
        }
    }
}

/// Parses `metrics-endpoint` as an address to listen on: `host:port`, all addresses if the host is empty.
fn endpoint(text: &str) -> anyhow::Result<SocketAddr> {
    let parsed = text.rsplit_once(':').and_then(|(host, port)| {
        let host = match host.trim_start_matches('[').trim_end_matches(']') {
            "" => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            "localhost" => IpAddr::from(Ipv4Addr::LOCALHOST),
            host => host.parse().ok()?,
        };
        Some(SocketAddr::new(host, port.parse().ok()?))
    });
    parsed.with_context(|| format!("metrics-endpoint = {text}: must be an IP address and a port, such as 0.0.0.0:9090"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin_tls::tests::tls_from;
    use crate::telemetry::Instrument;
    use crate::telemetry::instrument::Kind;
    use crate::tests::self_signed;
    use crate::tls::client::TlsStream;
    use crate::tls::{Roots, TlsConnector, add_roots, rustls};
    use prometheus_client::metrics::counter::Counter;
    use rustls::pki_types::ServerName;
    use std::collections::BTreeMap;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[test]
    fn an_address_to_listen_on_has_a_port() {
        assert_eq!(endpoint(":9095").expect("valid"), "0.0.0.0:9095".parse().expect("an address"));
        assert_eq!(endpoint("[::1]:9095").expect("valid"), "[::1]:9095".parse().expect("an address"));
        for wrong in ["9095", "host.example:9095", "0.0.0.0:x"] {
            assert!(endpoint(wrong).expect_err(wrong).to_string().contains(wrong));
        }
    }

    fn plane(pairs: &[(&str, &str)]) -> Diagnostics {
        let data: BTreeMap<_, _> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let metrics = Metrics::default();
        let served: Counter =
            metrics.register(Instrument::new(Kind::Counter, "served", "Requests served"), Counter::default());
        served.inc();
        Diagnostics {
            identity: ProcessIdentity { service: "activator", namespace: "sys".into(), pod: "a".into() },
            metrics,
            config: watch::channel(Arc::new(ObservabilityConfig::from_map(&data).expect("valid"))).1,
            pages: Vec::new(),
            admin: Some((Ipv4Addr::LOCALHOST, 0).into()),
        }
    }

    async fn get(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("open");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn metrics_are_served_unless_the_protocol_is_none() {
        for (protocol, status) in [("prometheus", "200"), ("none", "404")] {
            let stop = CancellationToken::new();
            let plane = plane(&[("metrics-protocol", protocol)]);
            let observed = plane.observe(&ProcessOptions::default(), stop.clone()).await.expect("free ports");
            let stream = TcpStream::connect(observed.admin.expect("open")).await.expect("connected");
            let answer = get(stream, "/metrics").await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            for line in
                ["served_total 1", "zeroscale_build_info{component=\"activator\"", "process_resident_memory_bytes "]
            {
                assert_eq!(answer.contains(line), status == "200", "{line} in {answer}");
            }
            stop.cancel();
        }
    }

    /// Goal: with a certificate the port accepts only TLS; if client certificates are required, clients without one get
    /// no response.
    #[tokio::test]
    async fn the_admin_port_speaks_tls_if_it_has_a_certificate() {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = self_signed("a");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("writable");
            path.display().to_string()
        };
        let (cert, key) = (write("c", &certificate), write("k", &key));
        for (auth, answered) in [("none", true), ("optional", true), ("require", false)] {
            let tls = tls_from(&[("CERT", &cert), ("KEY", &key), ("CLIENT_AUTH", auth), ("CLIENT_CA_FILE", &cert)]);
            let process = ProcessOptions { admin_tls: tls.expect("valid"), ..ProcessOptions::default() };
            let stop = CancellationToken::new();
            let observed = plane(&[]).observe(&process, stop.clone()).await.expect("free ports");
            let address = observed.admin.expect("open");
            let plain = get(TcpStream::connect(address).await.expect("connected"), "/metrics").await;
            assert!(plain.contains("HTTPS server"), "{plain}");
            let mut roots = rustls::RootCertStore::empty();
            add_roots(&mut roots, "c", certificate.as_bytes()).expect("an authority");
            let connector = TlsConnector::from(Roots::new(roots).expect("TLS 1.3").config());
            let stream = TcpStream::connect(address).await.expect("connected");
            let name = ServerName::try_from("a").expect("a name");
            // In TLS 1.3 a client learns of its rejection only when it reads.
            let stream: TlsStream<TcpStream> = connector.connect(name, stream).await.expect("a handshake");
            assert_eq!(get(stream, "/metrics").await.contains("served_total 1"), answered, "{auth}");
            stop.cancel();
        }
    }
}
