//! Short exchanges at an interval, each on its own connection: probes of the kubelet, and event streams of a page.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Path of the event stream of a waiting page.
pub(super) const PAGE_EVENTS: &str = "/.zeroscale/wake";

/// Interval of the exchanges.
const INTERVAL: Duration = Duration::from_millis(250);

/// Timeout of an exchange: that of the kubelet's probes by default.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the request by which an autoscaler probes an activator. The activator of a run is not ready for a kubelet,
/// because no autoscaler receives its stats.
pub(super) fn network_probe() -> String {
    "GET / HTTP/1.1\r\nhost: pod\r\nk-network-probe: activator\r\nconnection: close\r\n\r\n".to_owned()
}

/// Returns the request of a kubelet's probe.
pub(super) fn probe(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: pod\r\nuser-agent: kube-probe/1.36\r\nconnection: close\r\n\r\n")
}

/// Returns the request for the event stream of a waiting page.
pub(super) fn page_events(host: &str) -> String {
    format!("GET {PAGE_EVENTS} HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n\r\n")
}

/// Sends `request` on a new connection. Returns the time until the response began, or `None` if it was not 200 or took
/// too long.
pub(super) async fn once(to: SocketAddr, request: &str) -> Option<Duration> {
    let start = Instant::now();
    let exchange = async {
        let mut stream = TcpStream::connect(to).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.ok()?;
        (answer == *b"HTTP/1.1 200").then(|| start.elapsed())
    };
    tokio::time::timeout(TIMEOUT, exchange).await.ok().flatten()
}

/// Starts to repeat [`once`] at an interval, and returns the receiver of its results.
pub(super) fn repeat(tasks: &mut JoinSet<()>, to: SocketAddr, request: String) -> UnboundedReceiver<Option<Duration>> {
    let (sender, times) = unbounded_channel();
    tasks.spawn(async move {
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            interval.tick().await;
            let _ = sender.send(once(to, &request).await); // At the end there is no receiver.
        }
    });
    times
}

/// Times of the successful exchanges in ascending order, and the number of the others.
#[derive(Debug, Default)]
pub struct Times {
    /// Times of the successful exchanges, in ascending order.
    pub successful: Vec<Duration>,
    /// Number of failed exchanges.
    pub failed: usize,
}

impl FromIterator<Option<Duration>> for Times {
    fn from_iter<I: IntoIterator<Item = Option<Duration>>>(times: I) -> Self {
        let mut all = Self::default();
        for time in times {
            time.map_or_else(|| all.failed += 1, |time| all.successful.push(time));
        }
        all.successful.sort_unstable();
        all
    }
}

impl Times {
    /// Returns a quantile of the successful exchanges, in thousandths; zero if there is none.
    pub fn quantile(&self, thousandths: usize) -> Duration {
        self.successful.get(self.successful.len() * thousandths / 1000).copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "{}, median {:.1} ms, p99 {:.1} ms, worst {:.1} ms, {} failed",
            self.successful.len() + self.failed,
            ms(self.quantile(500)),
            ms(self.quantile(990)),
            ms(self.successful.last().copied().unwrap_or_default()),
            self.failed,
        )
    }
}
