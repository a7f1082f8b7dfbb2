//! Ten thousand visitors that keep a waiting page open forever, at one activator in a separate process.

use anyhow::Context;
use e2e::parts::Parts;
use e2e::soak::usage::Usage;
use e2e::space::SOON;
use e2e::{Load, Space, Workload};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Number of visitors.
const STREAMS: usize = 10_000;
/// Number of workloads that they visit, none of which ever becomes ready.
const WORKLOADS: usize = 10;
/// Minimum number of visitors that must get a stream: most of the connections that 20 000 descriptors allow.
const SERVED_MIN: usize = 6_000;
/// Maximum growth of the activator: memory of streams and their connections, with some reserve.
const GROWTH_MAX_MIB: u64 = 400;
/// Number of visitors that connect concurrently.
const AT_ONCE: usize = 200;

/// Opens a stream and reads the head of the response. Returns `None` if the activator closes the connection first.
async fn open(address: std::net::SocketAddr, host: String) -> anyhow::Result<Option<(TcpStream, String)>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /.zeroscale/wake HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = timeout(Duration::from_secs(60), stream.read_buf(&mut bytes)).await.context("no answer")?;
        if read.unwrap_or(0) == 0 {
            return Ok(None);
        }
    }
    Ok(Some((stream, String::from_utf8_lossy(&bytes).into_owned())))
}

/// Goal: the activator serves as many streams as descriptors and memory allow, and no more. A workload without streams
/// loses no request.
#[tokio::test(flavor = "multi_thread")]
async fn streams_of_waiting_pages_are_bounded() -> anyhow::Result<()> {
    common_runtime::descriptor::raise_limit();
    let parts = Parts::start().await?;
    let deciding = parts.run(parts.autoscaler).await?;
    let forwarding = parts.run(parts.activator).await?;
    let id = forwarding.id().context("it runs")?;
    let space = Space::create_in(parts.client.clone()).await?;
    let resident = || anyhow::Ok(Usage::of_process(id)?.resident_kib / 1024);
    let never = |n: usize| {
        // No pods run, so the requests here cost no processes.
        let workload = Workload::new(&format!("never-{n}")).env("HELLO_NEVER_READY", 1);
        workload.set("wake.page", json!({})).set("wake.timeout", "20m")
    };
    for n in 0..WORKLOADS {
        space.deploy(&never(n)).await?;
    }
    space.deploy(&Workload::new("warm").env("HELLO_LATENCY_MS", 10)).await?;
    let address = parts.activator.address;
    let warm = Load::new(address, format!("warm.{}", space.namespace));
    warm.get_ok("/").await?;
    let (before, clients) = (resident()?, warm.start(2, "/"));
    let (mut visitors, mut streams, mut refused) = (JoinSet::new(), Vec::new(), 0);
    let mut next = 0;
    while streams.len() + refused < STREAMS {
        while next < STREAMS && visitors.len() < AT_ONCE {
            visitors.spawn(open(address, format!("never-{}.{}", next % WORKLOADS, space.namespace)));
            next += 1;
        }
        match visitors.join_next().await.context("one is left")??? {
            Some((stream, head)) if head.starts_with("HTTP/1.1 200 ") => streams.push(stream),
            Some((_, head)) => {
                let has = |reason: &str| head.contains(&format!("x-zeroscale-reason: {reason}\r\n"));
                let is_clear = has("page-events-full") || has("max-connections");
                assert!(head.starts_with("HTTP/1.1 503 ") && is_clear && head.contains("retry-after: "), "{head}");
                refused += 1;
            }
            // The activator closed it: its workload held the most connections when another client connected.
            None => refused += 1,
        }
    }
    let after = resident()?;
    assert!(streams.len() >= SERVED_MIN, "{} served, {refused} refused", streams.len());
    clients.end().await?;
    assert!(after.saturating_sub(before) <= GROWTH_MAX_MIB, "{before} -> {after} MiB");

    // A closed stream frees its place.
    drop(streams);
    let is_opened = async || {
        let opened = open(address, format!("never-0.{}", space.namespace)).await?;
        Ok(opened.is_some_and(|(_, head)| head.starts_with("HTTP/1.1 200 ")))
    };
    space.until(SOON, "a place for another stream", is_opened).await?;
    space.delete().await?;
    parts.end(forwarding, deciding).await
}
