//! h2load: HTTP/2 with prior knowledge in a closed loop, with plain requests or unary gRPC calls.

use super::LoadResult;
use crate::tools;
use anyhow::{Context, ensure};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

/// Sends as many requests as possible on `clients` connections with `streams` each. With `body`, each request is a gRPC
/// call that carries it.
pub(crate) async fn run(
    address: SocketAddr,
    host: &str,
    (clients, streams): (usize, usize),
    span: Duration,
    body: Option<&Path>,
) -> anyhow::Result<LoadResult> {
    let grpc = ["-H", "content-type: application/grpc", "-H", "te: trailers"].map(OsStr::new);
    let args = body.map(|body| [&[OsStr::new("-d"), body.as_os_str()][..], &grpc].concat()).unwrap_or_default();
    let count = output_of(&format!("http://{address}/"), host, (clients, streams), span, &args, parse).await?;
    Ok(LoadResult { count, took: Duration::from_secs(seconds(span)) })
}

/// Runs h2load with `args` in addition. Returns the value that `read` parses from its output.
pub(super) async fn output_of(
    url: &str,
    host: &str,
    (clients, streams): (usize, usize),
    span: Duration,
    args: &[&OsStr],
    read: fn(&str) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    let output = Command::new(tools::H2LOAD.path()?)
        .args(["-t1", &format!("-c{clients}"), &format!("-m{streams}"), &format!("-D{}", seconds(span))])
        .args(["-H", &format!(":authority: {host}")])
        .args(args)
        .arg(url)
        .kill_on_drop(true)
        .output()
        .await?;
    let text = String::from_utf8_lossy(&output.stdout);
    read(&text).with_context(|| format!("h2load: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn seconds(span: Duration) -> u64 {
    span.as_secs().max(1)
}

fn parse(text: &str) -> anyhow::Result<f64> {
    none_failed(text)?;
    count(text, " succeeded")
}

/// Fails if some requests failed.
pub(super) fn none_failed(text: &str) -> anyhow::Result<()> {
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
    fn a_summary_is_parsed_and_failed_requests_are_an_error() {
        let good = "requests: 12 total, 12 started, 12 done, 12 succeeded, 0 failed, 0 errored, 0 timeout\n";
        assert_eq!(parse(good).expect("good"), 12.0);
        assert!(parse(&good.replace("0 failed", "1 failed")).is_err());
        assert!(parse("").is_err());
    }
}
