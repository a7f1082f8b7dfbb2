//! Many sleeping workloads with a port of their own: how soon a starting activator is ready, how much more memory it
//! needs than with [`FEW`], and whether one of many workloads wakes as soon as one of few.

use crate::client::Connection;
use crate::cluster::{ReceivedStat, TestActivator};
use crate::idle::SETTLE;
use crate::process::Process;
use crate::report::{Figures, MEDIAN, Measurement, Row};
use crate::settings::{Settings, quantile};
use anyhow::Context;
use common::RevisionKey;
use common::backend::Protocol;
use common::names;
use common::ports::{Block, Entry, NumberState, PortId, ledger};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{Instant, timeout};

/// Number of workloads in the comparison.
const FEW: usize = 100;
/// Number of workloads that receive a request, one after the other, and then a pod.
const WOKEN: usize = 100;
/// Number of measurements with few and with many workloads, in turn, because durations of about 100 µs vary from
/// minute to minute.
const TURNS: usize = 5;
/// Maximum time to wait for the stat of a request.
const STAT_TIMEOUT: Duration = Duration::from_secs(5);
/// First port number.
const FIRST: u16 = 20_000;
/// Number of objects created concurrently.
const CREATING: usize = 16;
const MIB: f64 = 1024.0 * 1024.0;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        Row::at_most("ports-ready", "start → ready, 10 000 workloads at zero", "s", 10.0, 3.0),
        Row::at_most("ports-memory", "resident memory beyond that with 100 workloads", "MiB", 20.0, 10.0),
        Row::at_most(
            "ports-poke",
            "request written to a workload's port → report at the autoscaler: of 10 000 workloads ÷ of 100, medians",
            "",
            1.2,
            1.0,
        ),
        Row::at_most(
            "ports-wake",
            "address of a pod written to the API server → response to the held request: the same ratio",
            "",
            1.2,
            1.0,
        ),
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        few.push(measure(settings, FEW).await?);
        many.push(measure(settings, settings.revisions).await?);
    }
    let mut figures = Figures::default();
    let additional = |unit: f64| -> Vec<f64> {
        many.iter().zip(&few).map(|(many, few)| (many.resident - few.resident) / unit).collect()
    };
    let ratio = |times: fn(&Measured) -> &[f64]| -> Vec<f64> {
        many.iter().zip(&few).map(|(many, few)| quantile(times(many), MEDIAN) / quantile(times(few), MEDIAN)).collect()
    };
    figures.row("ports-ready", many.iter().map(|many| many.ready.as_secs_f64()).collect());
    figures.row("ports-memory", additional(MIB));
    figures.row("ports-poke", ratio(|measured| &measured.pokes));
    figures.row("ports-wake", ratio(|measured| &measured.wakes));
    figures.add_context(format!("MiB with {FEW} workloads"), few.iter().map(|few| few.resident / MIB).collect());
    let each = additional(1024.0 * settings.revisions as f64);
    figures.add_context(format!("KiB per workload with {} workloads", settings.revisions), each);
    for (workloads, turns) in [(FEW, few), (settings.revisions, many)] {
        let all = |times: fn(&Measured) -> &[f64]| turns.iter().flat_map(times).copied().collect::<Vec<_>>();
        figures.add_context(format!("ms to the stat with {workloads} workloads"), all(|measured| &measured.pokes));
        figures.add_context(format!("ms of a wake with {workloads} workloads"), all(|measured| &measured.wakes));
    }
    Ok(figures)
}

struct Measured {
    /// Time from the activator's start until it is ready.
    ready: Duration,
    /// Resident memory in bytes, after it has settled.
    resident: f64,
    /// Milliseconds from a request to its stat, and from a pod's address to the response.
    pokes: Vec<f64>,
    wakes: Vec<f64>,
}

async fn measure(settings: &Settings, workloads: usize) -> anyhow::Result<Measured> {
    let mut uids = Vec::new();
    let (activator, ready) = TestActivator::start_after(settings, async |client| {
        uids = create(client, workloads).await?;
        Ok(())
    })
    .await?;
    tokio::time::sleep(SETTLE).await;
    let resident = activator.process.resident()? as f64;

    let woken = WOKEN.min(workloads);
    let chosen = (0..woken).map(|n| n * workloads / woken);
    let (mut stats, mut pokes, mut held) = (activator.subscribe_stats(), Vec::new(), Vec::new());
    for n in chosen {
        let name = name(n);
        let mut connection = Connection::open(SocketAddr::new(activator.http1.ip(), number(n)?)).await?;
        let begin = Instant::now();
        connection.send("hello").await?;
        let arrived = timeout(STAT_TIMEOUT, until_stat(&name, &mut stats))
            .await
            .with_context(|| format!("no stat of {name}"))??;
        pokes.push((arrived - begin).as_secs_f64() * 1e3);
        held.push((n, name, connection));
    }
    let (_pod, address) = Process::server(&["http1-backend"])?;
    let mut wakes = Vec::new();
    for (n, name, mut connection) in held {
        activator.register_scaler(&name, uids.get(n).context("no uid")?.clone());
        let begin = Instant::now();
        activator.set_pods(&name, Protocol::Http1, &[address]).await?;
        wakes.push((connection.answer().await? - begin).as_secs_f64() * 1e3);
    }
    Ok(Measured { ready, resident, pokes, wakes })
}

/// Waits for the first stat of `name`, and returns the time of its arrival.
async fn until_stat(name: &str, stats: &mut broadcast::Receiver<ReceivedStat>) -> anyhow::Result<Instant> {
    loop {
        match stats.recv().await {
            Ok((revision, when)) if revision == name => return Ok(when),
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => anyhow::bail!("the stat server has gone"),
        }
    }
}

/// Creates the objects of sleeping workloads as an autoscaler leaves them: a ZeroScaler with its status, a private
/// Service and a slice with activators for each, and the ledger of their port numbers. Returns the ZeroScalers' uids.
async fn create(client: &Client, workloads: usize) -> anyhow::Result<Vec<String>> {
    let uids: Vec<String> =
        stream::iter(0..workloads).map(|n| create_workload(client, n)).buffered(CREATING).try_collect().await?;
    let mut maps: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (n, uid) in uids.iter().cloned().enumerate() {
        let number = number(n)?;
        let key = RevisionKey::new(TestActivator::NAMESPACE, name(n));
        let port = PortId { name: "http".to_owned(), port: 80 };
        let data = maps.entry(Block::containing(number).map_name()).or_default();
        ledger::write(data, number, &Entry { state: NumberState::Held, key, uid: uid.into(), port });
    }
    for (name, data) in maps {
        let labels = json!({names::LEDGER: names::LEDGER_OF_PORTS});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data});
        e2e::bare::create(client, Some(e2e::bare::SYSTEM), map).await?;
    }
    Ok(uids)
}

/// Creates the objects of one workload. Returns the uid of its ZeroScaler.
async fn create_workload(client: &Client, n: usize) -> anyhow::Result<String> {
    let (name, number) = (name(n), number(n)?);
    let backend = json!({"probe": {"type": "Tcp"}, "timeoutMs": 300_000, "maxHeld": 10_000});
    let scaler = e2e::bare::zeroscaler(&name, json!({"target": {"kind": "Deployment", "name": name}}));
    let mut scaler = e2e::bare::create(client, Some(TestActivator::NAMESPACE), scaler).await?;
    scaler.data["status"] = json!({
        "observedGeneration": 1, "service": name, "backend": backend,
        "ports": [{"name": "http", "port": 80, "number": number, "protocol": "auto"}],
    });
    let api = e2e::bare::api_of(client, Some(TestActivator::NAMESPACE), &scaler)?;
    api.replace_status(&name, &Default::default(), &scaler).await?;
    let uid = scaler.metadata.uid.context("an object has a uid")?;
    let owner = json!([{
        "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "name": name, "uid": uid, "controller": true,
    }]);
    let labels = |side: &str| json!({names::SIDE: side, names::WORKLOAD: name});
    let private = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": names::private_service(&name), "labels": labels(names::SERVICE_TYPE_PRIVATE), "ownerReferences": owner,
        },
        "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]},
    });
    e2e::bare::create(client, Some(TestActivator::NAMESPACE), private).await?;
    let ready = json!({"ready": true});
    let public = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "labels": labels(names::SERVICE_TYPE_PUBLIC), "ownerReferences": owner},
        "ports": [{"name": "http", "port": number}],
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": ready}, {"addresses": ["10.0.0.2"], "conditions": ready},
        ],
    });
    e2e::bare::create(client, Some(TestActivator::NAMESPACE), public).await?;
    Ok(uid)
}

fn name(n: usize) -> String {
    format!("asleep-{n:05}")
}

fn number(n: usize) -> anyhow::Result<u16> {
    u16::try_from(n).ok().and_then(|n| FIRST.checked_add(n)).context("more than 45 536 workloads")
}
