//! Ports of operators and planes while clients take all the connections that they can get, the planes as processes of their
//! own.

use anyhow::{Context, ensure};
use e2e::parts::Parts;
use e2e::space::SOON;
use e2e::{Load, Outcome, Process, Space, Workload};
use local::up::is_ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Clients at once: as many as once stalled requests, and twice as many.
const SCRAPERS: [usize; 2] = [3_000, 6_000];
/// The same of the stat port, where they once took all connections that there were.
const SILENT: [usize; 2] = [4_096, 8_192];
/// How long they go on.
const LASTS: Duration = Duration::from_secs(4);
/// Longest time of a request of others in the 99th percentile. The bound of the design is 50 ms; clients and planes share
/// the processors here, and are not optimised.
const OTHERS: Duration = Duration::from_millis(500);

/// Asks for metrics, once a second, and counts the answers.
async fn scrape(admin: SocketAddr, from: SocketAddr, served: Arc<AtomicUsize>) {
    loop {
        let asked = async {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind(from)?;
            let mut stream = socket.connect(admin).await?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            std::io::Result::Ok(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"0\r\n\r\n"))
        };
        if matches!(timeout(Duration::from_secs(30), asked).await, Ok(Ok(true))) {
            served.fetch_add(1, Ordering::Relaxed);
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Resident memory in MiB and open descriptors of a process.
fn usage(process: &Process) -> anyhow::Result<(u64, usize)> {
    let folder = format!("/proc/{}", process.id().context("it runs")?);
    let status = std::fs::read_to_string(format!("{folder}/status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let kib: u64 = resident.split_whitespace().next().context("a number")?.parse()?;
    Ok((kib / 1024, std::fs::read_dir(format!("{folder}/fd"))?.count()))
}

/// Requests of others for a while, and whether each probe of both planes succeeds meanwhile.
async fn others(load: &Load, probed: &[SocketAddr]) -> anyhow::Result<Outcome> {
    let stop = CancellationToken::new();
    let requests = tokio::spawn({
        let (load, stop) = (load.clone(), stop.clone());
        async move { load.steady(2, "/", stop).await }
    });
    let until = Instant::now() + LASTS;
    while Instant::now() < until {
        for address in probed {
            // As the kubelet, which waits for a second.
            let answer = timeout(Duration::from_secs(1), is_ready(*address)).await;
            ensure!(answer == Ok(Some(true)), "the probe of {address}: {answer:?}");
        }
        sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    Ok(requests.await?)
}

/// Goal: thousands of scrapers of either plane, and thousands of silent connections to the stat port, fail no probe and no
/// request of others, and delay none by much; a scraper from another address is served, and so is another activator.
#[tokio::test(flavor = "multi_thread")]
async fn crowded_ports_of_planes_cost_requests_nothing() -> anyhow::Result<()> {
    common_runtime::descriptor::raise_limit();
    let parts = Parts::start(&[("scale-to-zero-grace-period", "60s")]).await?;
    let deciding = parts.run(parts.autoscaler).await?;
    let forwarding = parts.run(parts.activator).await?;
    let space = Space::create_in(parts.client.clone()).await?;
    space.deploy(&Workload::new("hello").set("scale", serde_json::json!({"min": 1}))).await?;
    let load = Load::new(parts.activator.address, format!("hello.{}", space.namespace));
    ensure!(load.get("/").await?.status == 200);
    let probed = [parts.activator.address, parts.autoscaler.address];
    let check = |case: &str, outcome: &Outcome, process: &Process| -> anyhow::Result<()> {
        let (p99, (resident, descriptors)) = (outcome.quantile(0.99), usage(process)?);
        println!("{case}: {} requests, p99 {p99:?}, {resident} MiB, {descriptors} descriptors", outcome.ok);
        outcome.clone().none_lost()?;
        ensure!(outcome.ok > 0 && p99 < OTHERS, "{case}: p99 {p99:?}");
        ensure!(descriptors < 1_500, "{case}: {descriptors} descriptors");
        Ok(())
    };
    check("alone", &others(&load, &probed).await?, &forwarding)?;

    for (plane, process) in [(parts.activator, &forwarding), (parts.autoscaler, &deciding)] {
        let admin = SocketAddr::new(plane.address.ip(), 9090);
        for count in SCRAPERS {
            let (mut scrapers, theirs, served) = (JoinSet::new(), Arc::default(), Arc::<AtomicUsize>::default());
            for _ in 0..count {
                scrapers.spawn(scrape(admin, "127.0.0.1:0".parse()?, Arc::clone(&theirs)));
            }
            scrapers.spawn(scrape(admin, "127.0.0.2:0".parse()?, served.clone()));
            let outcome = others(&load, &probed).await?;
            check(&format!("{count} scrapers of {admin}"), &outcome, process)?;
            // It waits behind those that came before it, and is not closed for those that come after.
            let is_served = async || Ok(served.load(Ordering::Relaxed) > 0);
            space.until(SOON, "a scraper from another address to be served", is_served).await?;
            println!("of the scrapers {} were served", theirs.load(Ordering::Relaxed));
            scrapers.shutdown().await;
        }
    }
    for count in SILENT {
        let mut silent = Vec::new();
        for _ in 0..count {
            silent.push(timeout(Duration::from_secs(30), TcpStream::connect(parts.autoscaler.address)).await??);
        }
        let outcome = others(&load, &probed).await?;
        check(&format!("{count} silent connections to the stat port"), &outcome, &deciding)?;
    }
    space.delete().await?;
    parts.end(forwarding, deciding).await
}
