//! The cluster's DNS, with the API server as fallback: for a connection without which no workload can be woken.
//!
//! DNS comes first, because a Service's cluster IP passes through the usual network path between two pods. After
//! [`PATIENCE`], or if DNS does not know the name, the API server is asked as well, and the first address counts.

use super::Resolve;
use futures::future::BoxFuture;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Time after which the API server is asked as well.
const PATIENCE: Duration = Duration::from_secs(1);

/// Resolves with DNS, then with the API server.
#[derive(Clone)]
pub struct DnsElseApi {
    dns: Arc<dyn Resolve>,
    api: Arc<dyn Resolve>,
}

impl DnsElseApi {
    /// Creates a resolver that uses `api` if `dns` has no result.
    pub fn new(dns: Arc<dyn Resolve>, api: Arc<dyn Resolve>) -> Self {
        Self { dns, api }
    }
}

impl Resolve for DnsElseApi {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let mut dns = self.dns.resolve(host, port);
            match timeout(PATIENCE, &mut dns).await {
                Ok(Ok(found)) => Ok(found),
                Ok(Err(unknown)) => self.api.resolve(host, port).await.map_err(|_| unknown),
                Err(_) => tokio::select! {
                    Ok(found) = dns => Ok(found),
                    Ok(found) = self.api.resolve(host, port) => Ok(found),
                    else => Err(io::Error::other("neither DNS nor the API server returned an address in time")),
                },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    /// Result of a mock resolver, and its delay.
    struct Mock(Result<u8, &'static str>, Duration);

    impl Resolve for Mock {
        fn resolve<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
            Box::pin(async move {
                tokio::time::sleep(self.1).await;
                let address = self.0.map_err(io::Error::other)?;
                Ok(vec![SocketAddr::new(IpAddr::from([10, 0, 0, address]), port)])
            })
        }
    }

    /// Goal: a result of DNS within [`PATIENCE`] counts. If DNS fails, the API server's result counts. If DNS is slow,
    /// the first result of either counts.
    #[tokio::test(start_paused = true)]
    async fn the_api_server_is_asked_if_dns_fails_or_is_slow() {
        const NEITHER: &str = "neither DNS nor the API server returned an address in time";
        let (at_once, soon) = (Duration::ZERO, Duration::from_millis(900));
        let (slow, late) = (Duration::from_secs(2), Duration::from_secs(60));
        for (dns, api, expected, within) in [
            (Mock(Ok(1), soon), Mock(Ok(2), at_once), Ok(1), 900),
            (Mock(Err("no such name"), at_once), Mock(Ok(2), at_once), Ok(2), 0),
            (Mock(Err("no such name"), at_once), Mock(Err("denied"), at_once), Err("no such name"), 0),
            (Mock(Ok(1), late), Mock(Ok(2), soon), Ok(2), 1_900),
            (Mock(Ok(1), slow), Mock(Ok(2), late), Ok(1), 2_000),
            (Mock(Ok(1), slow), Mock(Err("denied"), at_once), Ok(1), 2_000),
            (Mock(Err("no such name"), slow), Mock(Err("denied"), at_once), Err(NEITHER), 2_000),
        ] {
            let (resolver, begun) = (DnsElseApi::new(Arc::new(dns), Arc::new(api)), tokio::time::Instant::now());
            let found = resolver.resolve("autoscaler.system", 8080).await;
            let first = found.map(|found| found.first().map(ToString::to_string)).map_err(|error| error.to_string());
            assert_eq!(first, expected.map(|last| Some(format!("10.0.0.{last}:8080"))).map_err(str::to_owned));
            assert_eq!(begun.elapsed(), Duration::from_millis(within));
        }
    }
}
