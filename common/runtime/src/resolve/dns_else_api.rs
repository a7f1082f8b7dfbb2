//! The cluster's DNS, and the API server where DNS has no answer: for a link that workloads cannot be woken without.
//!
//! DNS comes first, since a Service's own address goes through whatever stands between two pods. It is given [`PATIENCE`];
//! after that, or when it knows no such name, the API server is asked beside it, and whoever says where the host is counts.

use super::Resolve;
use futures::future::BoxFuture;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// For so long nobody else is asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// One after the other.
#[derive(Clone)]
pub struct DnsElseApi {
    dns: Arc<dyn Resolve>,
    api: Arc<dyn Resolve>,
}

impl DnsElseApi {
    /// `api` answers where `dns` does not.
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
                    else => Err(io::Error::other("neither DNS nor the API server says where it is")),
                },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    /// What one of them says, and when.
    struct Says(Result<u8, &'static str>, Duration);

    impl Resolve for Says {
        fn resolve<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
            Box::pin(async move {
                tokio::time::sleep(self.1).await;
                let address = self.0.map_err(io::Error::other)?;
                Ok(vec![SocketAddr::new(IpAddr::from([10, 0, 0, address]), port)])
            })
        }
    }

    /// Goal: DNS has the say while it answers; where it fails or is silent the API server's word counts, and its own as
    /// soon as it comes.
    #[tokio::test(start_paused = true)]
    async fn the_api_server_answers_for_a_dns_that_does_not() {
        let (at_once, soon, late) = (Duration::ZERO, Duration::from_millis(900), Duration::from_secs(60));
        for (dns, api, expected, within) in [
            (Says(Ok(1), soon), Says(Ok(2), at_once), Ok(1), 900),
            (Says(Err("no such name"), at_once), Says(Ok(2), at_once), Ok(2), 0),
            (Says(Err("no such name"), at_once), Says(Err("denied"), at_once), Err("no such name"), 0),
            (Says(Ok(1), late), Says(Ok(2), soon), Ok(2), 1_900),
            (Says(Ok(1), Duration::from_secs(2)), Says(Ok(2), late), Ok(1), 2_000),
            (Says(Ok(1), Duration::from_secs(2)), Says(Err("denied"), at_once), Ok(1), 2_000),
            (
                Says(Err("no such name"), Duration::from_secs(2)),
                Says(Err("denied"), at_once),
                Err("neither DNS nor the API server says where it is"),
                2_000,
            ),
        ] {
            let (resolver, begun) = (DnsElseApi::new(Arc::new(dns), Arc::new(api)), tokio::time::Instant::now());
            let found = resolver.resolve("autoscaler.system", 8080).await;
            let said = found.map(|found| found.first().map(ToString::to_string)).map_err(|error| error.to_string());
            assert_eq!(said, expected.map(|last| Some(format!("10.0.0.{last}:8080"))).map_err(str::to_owned));
            assert_eq!(begun.elapsed(), Duration::from_millis(within));
        }
    }
}
