//! Profiling port: CPU profiles as folded stacks, the input of flame graphs.
//!
//! The port is always bound, as upstream's, and responds 404 to everything unless `runtime-profiling` is `enabled` in
//! config-observability. The setting is read for each request.
//!
//! `GET /debug/pprof/profile?seconds=N` samples the process for N seconds (30 by default, 120 at most). Only one
//! profile can be taken at a time, because the samples come from the process's single SIGPROF timer.
//!
//! The sampler is only built with the feature `profiling`, which is off by default: it installs a signal handler and
//! unwinds stacks in it. Without the feature the port responds 501 and names the feature.
//!
//! # Not here
//!
//! Go's other profiles (heap, goroutine, trace, ...), which have no meaning here. The format of `go tool pprof`: an
//! encoder for a feature that developers rarely build in would be larger than this module.

#[cfg(feature = "profiling")]
mod cpu;

use crate::bounded_accept::{Acceptor, Limits};
use bytes::Bytes;
use common::config::ObservabilityConfig;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Longest wait for a request head, as upstream.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// Default length of a profile, as in Go.
const SECONDS: u64 = 30;
const SECONDS_MAX: u64 = 120;
/// Connection limits.
const LIMITS: Limits = Limits { total: 64, per_address: 16 };

/// Serves profiles on `listen` until `shutdown`, while `config` permits it.
///
/// # Errors
/// Fails if `listen` cannot be bound.
pub async fn serve(
    listen: SocketAddr,
    config: watch::Receiver<Arc<ObservabilityConfig>>,
    shutdown: CancellationToken,
) -> std::io::Result<SocketAddr> {
    let listener = crate::listen::listen(listen).map_err(|error| {
        let rule = "free the port, or set PROFILING_PORT to another one";
        std::io::Error::new(error.kind(), format!("profiling port {listen} cannot be bound: {error}; {rule}"))
    })?;
    let address = listener.local_addr()?;
    let (acceptor, stopped) = (Acceptor::new(listener, "profiling", LIMITS), shutdown.clone());
    tokio::spawn(acceptor.serve(shutdown, move |stream, _| {
        let (config, shutdown) = (config.clone(), stopped.clone());
        async move {
            let service = hyper::service::service_fn(|request: Request<Incoming>| {
                let enabled = config.borrow().profiling;
                async move { Ok::<_, Infallible>(answer(enabled, &request).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            let _ = shutdown.run_until_cancelled(connection).await;
        }
    }));
    Ok(address)
}

async fn answer<B>(enabled: bool, request: &Request<B>) -> Response<Full<Bytes>> {
    if !enabled {
        return crate::admin::text(StatusCode::NOT_FOUND, "");
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/debug/pprof/profile") => match seconds(request.uri().query()) {
            Ok(seconds) => profile(Duration::from_secs(seconds)).await,
            Err(problem) => crate::admin::text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
        },
        (&Method::GET, "/debug/pprof" | "/debug/pprof/") => {
            crate::admin::text(StatusCode::OK, "/debug/pprof/profile?seconds=N: a CPU profile as folded stacks\n")
        }
        _ => crate::admin::text(StatusCode::NOT_FOUND, "only /debug/pprof/profile is served\n"),
    }
}

/// Parses `seconds=N`.
fn seconds(query: Option<&str>) -> Result<u64, String> {
    let asked = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("seconds="));
    match asked {
        None => Ok(SECONDS),
        Some(text) => text
            .parse()
            .ok()
            .filter(|seconds| (1..=SECONDS_MAX).contains(seconds))
            .ok_or_else(|| format!("seconds={text}: must be a whole number from 1 to {SECONDS_MAX}")),
    }
}

#[cfg(feature = "profiling")]
async fn profile(length: Duration) -> Response<Full<Bytes>> {
    match cpu::profile(length).await {
        Ok(stacks) => crate::admin::text(StatusCode::OK, stacks),
        Err(problem) => crate::admin::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{problem}\n")),
    }
}

#[cfg(not(feature = "profiling"))]
async fn profile(_: Duration) -> Response<Full<Bytes>> {
    let problem = "this binary has no CPU profiler: build it with the feature common-runtime/profiling\n";
    crate::admin::text(StatusCode::NOT_IMPLEMENTED, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn get(enabled: bool, uri: &str) -> (StatusCode, Bytes) {
        let request = Request::get(uri).body(()).expect("a request");
        let response = answer(enabled, &request).await;
        let status = response.status();
        (status, response.into_body().collect().await.expect("whole").to_bytes())
    }

    #[tokio::test]
    async fn what_is_not_enabled_is_not_found() {
        for uri in ["/debug/pprof/", "/debug/pprof/profile?seconds=1", "/"] {
            assert_eq!(get(false, uri).await.0, StatusCode::NOT_FOUND, "{uri}");
        }
        assert_eq!(get(true, "/debug/pprof/heap").await.0, StatusCode::NOT_FOUND);
        for query in ["0", "x", "", "-1", "121"] {
            let (status, text) = get(true, &format!("/debug/pprof/profile?seconds={query}")).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
            assert!(String::from_utf8_lossy(&text).contains(&format!("seconds={query}")), "{query}");
        }
    }

    #[cfg(not(feature = "profiling"))]
    #[tokio::test]
    async fn what_is_not_built_in_is_said() {
        let (status, text) = get(true, "/debug/pprof/profile?seconds=1").await;
        assert_eq!(status, StatusCode::NOT_IMPLEMENTED);
        assert!(String::from_utf8_lossy(&text).contains("common-runtime/profiling"), "{text:?}");
    }

    /// Goal: a profile names the busy function and its thread. Method: one thread that does nothing else.
    #[cfg(feature = "profiling")]
    #[tokio::test]
    async fn a_profile_names_what_was_busy() {
        use std::sync::atomic::{AtomicBool, Ordering};
        #[inline(never)]
        fn kept_busy(stop: &AtomicBool) -> u64 {
            let mut sum = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
            }
            sum
        }
        let stop = Arc::new(AtomicBool::new(false));
        let busy = std::thread::spawn({
            let stop = stop.clone();
            move || kept_busy(&stop)
        });
        // The port's shortest profile takes a second.
        let (status, bytes) = get(true, "/debug/pprof/profile?seconds=1").await;
        stop.store(true, Ordering::Relaxed);
        busy.join().expect("no panic");
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        let busy =
            text.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(stack, _)| stack.contains("kept_busy"));
        let samples: u64 = busy.filter_map(|(_, count)| count.parse::<u64>().ok()).sum();
        assert!(samples > 0, "{text}");
    }
}
