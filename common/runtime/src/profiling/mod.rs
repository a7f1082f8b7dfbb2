//! The profiling port: CPU profiles in pprof's form, for `go tool pprof` and its like.
//!
//! The port is always bound, as upstream's, and answers 404 to everything unless `runtime-profiling` is `enabled` in
//! config-observability; that is asked for each request.
//!
//! `GET /debug/pprof/profile?seconds=N` samples the process for N seconds (30 if unset, 120 at most) and answers with a
//! gzipped `profile.proto`. One at a time: the samples come from the process's one SIGPROF timer.
//!
//! # Not here
//!
//! Go's other profiles (heap, goroutine, trace, ...), which mean nothing here.

mod proto;

use bytes::Bytes;
use common::config::ObservabilityConfig;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use prost::Message;
use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Longest wait for a request head, as upstream.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// Samples a second and thread. Prime to the usual periods, so that none is hit or missed every time; Go's is 100.
const FREQUENCY: i32 = 99;
/// Length of a profile where none is asked for, as Go's.
const SECONDS: u64 = 30;
/// Longest profile.
const SECONDS_MAX: u64 = 120;
/// Libraries whose frames may hold locks that unwinding takes: samples inside them are left out.
const BLOCKED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Serves profiles on `listen` until `shutdown`, while `config` allows it.
///
/// # Errors
/// `listen` cannot be bound.
pub async fn serve(
    listen: SocketAddr,
    config: watch::Receiver<Arc<ObservabilityConfig>>,
    shutdown: CancellationToken,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        let rule = "PROFILING_PORT names another";
        std::io::Error::new(error.kind(), format!("profiling port {listen} cannot be bound: {error}; {rule}"))
    })?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        tokio::select! {
            () = accept(listener, config, shutdown.clone()) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(address)
}

async fn accept(listener: TcpListener, config: watch::Receiver<Arc<ObservabilityConfig>>, shutdown: CancellationToken) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "profiling port: accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await; // Out of descriptors: let some close.
                continue;
            }
        };
        let (config, shutdown) = (config.clone(), shutdown.clone());
        tokio::spawn(async move {
            let service = hyper::service::service_fn(|request: Request<Incoming>| {
                let enabled = config.borrow().profiling;
                async move { Ok::<_, Infallible>(answer(enabled, &request).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = connection => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
}

async fn answer<B>(enabled: bool, request: &Request<B>) -> Response<Full<Bytes>> {
    if !enabled {
        return crate::admin::text(StatusCode::NOT_FOUND, "");
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/debug/pprof/profile") => match seconds(request.uri().query()) {
            Ok(seconds) => match profile(Duration::from_secs(seconds)).await {
                Ok(bytes) => {
                    let mut response = Response::new(Full::new(Bytes::from(bytes)));
                    let octets = header::HeaderValue::from_static("application/octet-stream");
                    response.headers_mut().insert(header::CONTENT_TYPE, octets);
                    response
                }
                Err(problem) => crate::admin::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{problem}\n")),
            },
            Err(problem) => crate::admin::text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
        },
        (&Method::GET, "/debug/pprof" | "/debug/pprof/") => {
            crate::admin::text(StatusCode::OK, "/debug/pprof/profile?seconds=N: a CPU profile in pprof's form\n")
        }
        _ => crate::admin::text(StatusCode::NOT_FOUND, "only /debug/pprof/profile is served\n"),
    }
}

/// What `seconds=N` asks for.
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

/// Samples the process for so long.
///
/// # Cancel safety
/// Dropping the future ends the sampling.
async fn profile(length: Duration) -> Result<Vec<u8>, String> {
    let guard = pprof::ProfilerGuardBuilder::default()
        .frequency(FREQUENCY)
        .blocklist(&BLOCKED)
        .build()
        .map_err(|error| format!("a profile cannot be taken: {error}"))?;
    tokio::time::sleep(length).await;
    // Names are looked up in the program's debug information, which takes a while: not on a thread that serves.
    let encoded = tokio::task::spawn_blocking(move || {
        let report = guard.report().build().map_err(|error| format!("the profile cannot be read: {error}"))?;
        drop(guard);
        let bytes = proto::Profile::of(&report, FREQUENCY, length).encode_to_vec();
        let mut zip = GzEncoder::new(Vec::new(), Compression::default());
        zip.write_all(&bytes)
            .and_then(|()| zip.finish())
            .map_err(|error| format!("the profile cannot be packed: {error}"))
    });
    encoded.await.map_err(|error| format!("the profile cannot be read: {error}"))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use http_body_util::BodyExt;
    use std::io::Read;
    use std::sync::atomic::{AtomicBool, Ordering};

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

    /// Goal: a profile is what pprof reads, and names the function that was busy. Method: one thread that does nothing
    /// else.
    #[tokio::test]
    async fn a_profile_names_what_was_busy() {
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
        // The port's shortest profile is a second.
        let (status, zipped) = get(true, "/debug/pprof/profile?seconds=1").await;
        stop.store(true, Ordering::Relaxed);
        busy.join().expect("no panic");
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&zipped));
        let mut bytes = Vec::new();
        GzDecoder::new(&*zipped).read_to_end(&mut bytes).expect("gzip");
        let profile = proto::Profile::decode(&*bytes).expect("profile.proto");
        assert_eq!(profile.string_table.first().map(String::as_str), Some(""));
        assert!(profile.string_table.iter().any(|name| name.contains("kept_busy")), "{:?}", profile.string_table);
        for sample in &profile.sample {
            assert_eq!(sample.value.len(), profile.sample_type.len());
            assert!(sample.location_id.iter().all(|id| profile.location.iter().any(|l| l.id == *id)));
        }
    }
}
