//! wrk: HTTP/1.1 in a closed loop, with one thread.

use super::LoadResult;
use crate::tools;
use anyhow::{Context, ensure};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::process::Command;

/// Sends as many requests as possible on `connections`, one after the other on each.
pub(crate) async fn run(
    address: SocketAddr,
    host: &str,
    connections: usize,
    span: Duration,
) -> anyhow::Result<LoadResult> {
    let output = Command::new(tools::WRK.path()?)
        .args(["-t1", &format!("-c{connections}"), &format!("-d{}s", span.as_secs().max(1))])
        .args(["-H", &format!("Host: {host}"), &format!("http://{address}/")])
        .kill_on_drop(true)
        .output()
        .await?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).with_context(|| format!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Parses `123 requests in 2.00s, 1.00MB read`.
fn parse(text: &str) -> anyhow::Result<LoadResult> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_parsed_and_failed_requests_are_an_error() {
        let good = "Running 2s test\n  4000 requests in 2.10s, 0.5MB read\nRequests/sec: 1904.7\n";
        assert_eq!(parse(good).expect("good"), LoadResult { count: 4000.0, took: Duration::from_millis(2100) });
        assert!(parse(&format!("{good}  Non-2xx or 3xx responses: 5\n")).is_err());
        assert!(parse("unable to connect").is_err());
    }
}
