//! Load generators, the same for every target: wrk and h2load, with one thread, or threads of this program for TCP and
//! for bodies over HTTP/1.1.

pub(crate) mod bodies;
pub(crate) mod tcp;

use crate::process::{self, Tool};
use anyhow::{Context, ensure};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

/// Result of one run of a generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoadResult {
    /// Number of successful requests, or of other units of the load. A failed request is an error of the run.
    pub(crate) count: f64,
    /// Duration of the run.
    pub(crate) took: Duration,
}

/// Runs `drive` on `number` threads, which may block in the kernel. Returns the sum of their results.
async fn on_threads(
    number: usize,
    drive: impl Fn() -> anyhow::Result<f64> + Clone + Send + 'static,
) -> anyhow::Result<f64> {
    let threads: Vec<_> = (0..number).map(|_| std::thread::spawn(drive.clone())).collect();
    let joined = tokio::task::spawn_blocking(move || {
        let done = threads.into_iter().map(|thread| thread.join().ok().context("a thread panicked")?);
        done.sum::<anyhow::Result<f64>>()
    });
    joined.await?
}

/// Sends as many HTTP/1.1 requests as possible with wrk on `connections`, one after the other on each.
pub(crate) async fn wrk(
    address: SocketAddr,
    host: &str,
    connections: usize,
    span: Duration,
) -> anyhow::Result<LoadResult> {
    let args = [format!("-c{connections}"), format!("-d{}s", seconds(span)), "-H".into(), format!("Host: {host}")];
    run_tool(process::WRK, args, &[], &format!("http://{address}/"), wrk_result).await
}

/// Sends as many HTTP/2 requests as possible with h2load, with prior knowledge, on `clients` connections with `streams`
/// each. With `body`, each request is a gRPC call that carries it.
pub(crate) async fn h2load(
    address: SocketAddr,
    host: &str,
    clients: (usize, usize),
    span: Duration,
    body: Option<&Path>,
) -> anyhow::Result<LoadResult> {
    let grpc = ["-H", "content-type: application/grpc", "-H", "te: trailers"].map(OsStr::new);
    let more = body.map(|body| [&[OsStr::new("-d"), body.as_os_str()][..], &grpc].concat()).unwrap_or_default();
    let count = h2load_with(&format!("http://{address}/"), host, clients, span, &more, succeeded).await?;
    Ok(LoadResult { count, took: Duration::from_secs(seconds(span)) })
}

/// Runs h2load with `more` arguments. Returns the value that `read` parses from its output.
async fn h2load_with(
    url: &str,
    host: &str,
    (clients, streams): (usize, usize),
    span: Duration,
    more: &[&OsStr],
    read: fn(&str) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    let authority = format!(":authority: {host}");
    let args = [format!("-c{clients}"), format!("-m{streams}"), format!("-D{}", seconds(span)), "-H".into(), authority];
    run_tool(process::H2LOAD, args, more, url, read).await
}

async fn run_tool<T>(
    tool: Tool,
    args: impl IntoIterator<Item = String>,
    more: &[&OsStr],
    url: &str,
    read: fn(&str) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let path = tool.path()?;
    let output = Command::new(&path).arg("-t1").args(args).args(more).arg(url).kill_on_drop(true).output().await?;
    let text = String::from_utf8_lossy(&output.stdout);
    read(&text).with_context(|| format!("{}: {text}{}", path.display(), String::from_utf8_lossy(&output.stderr)))
}

fn seconds(span: Duration) -> u64 {
    span.as_secs().max(1)
}

/// Parses `123 requests in 2.00s, 1.00MB read`.
fn wrk_result(text: &str) -> anyhow::Result<LoadResult> {
    ensure!(!text.contains("Non-2xx") && !text.contains("Socket errors"), "some requests failed");
    let line = text.lines().find(|line| line.contains(" requests in ")).context("no summary")?;
    let (requests, rest) = line.trim().split_once(" requests in ").context("no summary")?;
    let took = rest.split(',').next().and_then(|took| took.strip_suffix('s')).context("no time")?;
    let seconds = match took.strip_suffix('m') {
        Some(millis) => millis.parse::<f64>()? / 1e3,
        None => took.parse()?,
    };
    Ok(LoadResult { count: requests.parse()?, took: Duration::from_secs_f64(seconds) })
}

fn succeeded(text: &str) -> anyhow::Result<f64> {
    none_failed(text)?;
    count(text, " succeeded")
}

/// Fails if some requests failed.
fn none_failed(text: &str) -> anyhow::Result<()> {
    ensure!(count(text, " failed")? == 0.0, "some requests failed");
    Ok(())
}

/// Parses `requests: 12 total, 12 started, 12 done, 12 succeeded, 0 failed, 0 errored, 0 timeout`.
fn count(text: &str, what: &str) -> anyhow::Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("requests: ")).context("no summary")?;
    let part = line.split(", ").find_map(|part| part.strip_suffix(what)).with_context(|| format!("no {what}"))?;
    Ok(part.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_parsed_and_failed_requests_are_an_error() {
        let good = "Running 2s test\n  4000 requests in 2.10s, 0.5MB read\nRequests/sec: 1904.7\n";
        assert_eq!(wrk_result(good).expect("good"), LoadResult { count: 4000.0, took: Duration::from_millis(2100) });
        assert!(wrk_result(&format!("{good}  Non-2xx or 3xx responses: 5\n")).is_err());
        assert!(wrk_result("unable to connect").is_err());
        let good = "requests: 12 total, 12 started, 12 done, 12 succeeded, 0 failed, 0 errored, 0 timeout\n";
        assert_eq!(succeeded(good).expect("good"), 12.0);
        assert!(succeeded(&good.replace("0 failed", "1 failed")).is_err());
        assert!(succeeded("").is_err());
    }
}
