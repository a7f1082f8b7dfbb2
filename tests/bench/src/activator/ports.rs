//! Many workloads that sleep, each with a port of its own: how soon an activator that starts is ready, and how much more
//! it keeps resident than with [`FEW`].

use crate::cluster::Plane;
use crate::idle::SETTLE;
use crate::report::{Figures, Good, MEDIAN, Measurement, Row};
use crate::settings::Settings;
use anyhow::Context;
use common::RevisionKey;
use common::names;
use common::ports::{Block, Entry, PortId, State, ledger};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// What memory is compared with.
const FEW: usize = 100;
/// The first number.
const FIRST: u16 = 20_000;
/// Objects that are made at once.
const AT_ONCE: usize = 16;
const MIB: f64 = 1024.0 * 1024.0;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        Row {
            name: "ports-ready",
            what: "start to ready, 10 000 sleeping workloads",
            unit: "s",
            good: Good::Small,
            judged: MEDIAN,
            must: 10.0,
            aim: 3.0,
        },
        Row {
            name: "ports-memory",
            what: "resident beyond that with 100",
            unit: "MiB",
            good: Good::Small,
            judged: MEDIAN,
            must: 20.0,
            aim: 10.0,
        },
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let (_, few) = measure(settings, FEW).await?;
    let (ready, many) = measure(settings, settings.revisions).await?;
    let mut figures = Figures::default();
    figures.row("ports-ready", vec![ready.as_secs_f64()]);
    figures.row("ports-memory", vec![(many - few) / MIB]);
    figures.beside(format!("MiB with {FEW}"), vec![few / MIB]);
    figures.beside(
        format!("KiB for each of {}", settings.revisions),
        vec![(many - few) / 1024.0 / settings.revisions as f64],
    );
    Ok(figures)
}

/// From the start to ready, and bytes resident once it has settled.
async fn measure(settings: &Settings, workloads: usize) -> anyhow::Result<(Duration, f64)> {
    let (plane, ready) = Plane::start_beside(settings, async |client| create(client, workloads).await).await?;
    tokio::time::sleep(SETTLE).await;
    let resident = plane.process.resident()? as f64;
    Ok((ready, resident))
}

/// What the autoscaler makes for workloads that sleep: for each a ZeroScaler with its status, the Service that selects its
/// pods, and a slice with activators; and the ledger of their numbers.
async fn create(client: &Client, workloads: usize) -> anyhow::Result<()> {
    let uids: Vec<String> =
        stream::iter(0..workloads).map(|n| workload(client, n)).buffered(AT_ONCE).try_collect().await?;
    let mut maps: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (n, uid) in uids.into_iter().enumerate() {
        let number = number(n)?;
        let key = RevisionKey::new(Plane::NAMESPACE, name(n));
        let port = PortId { name: "http".to_owned(), port: 80 };
        let data = maps.entry(Block::of(number).map_name()).or_default();
        ledger::write(data, number, Some(&Entry { state: State::Held, key, uid, port }));
    }
    for (name, data) in maps {
        let labels = json!({names::LEDGER: names::LEDGER_OF_PORTS});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data});
        e2e::bare::create(client, Some(e2e::bare::SYSTEM), map).await?;
    }
    Ok(())
}

/// One workload; its uid.
async fn workload(client: &Client, n: usize) -> anyhow::Result<String> {
    let (name, number) = (name(n), number(n)?);
    let backend = json!({"probe": {"type": "Tcp"}, "timeoutMs": 300_000, "maxHeld": 10_000});
    let scaler = json!({
        "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "metadata": {"name": name},
        "spec": {"target": {"kind": "Deployment", "name": name}},
    });
    let mut scaler = e2e::bare::create(client, Some(Plane::NAMESPACE), scaler).await?;
    scaler.data["status"] = json!({
        "observedGeneration": 1, "service": name, "backend": backend,
        "ports": [{"name": "http", "port": 80, "number": number, "protocol": "auto"}],
    });
    let kind = GroupVersionKind::gvk("zeroscale.dev", "v1alpha1", "ZeroScaler");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), Plane::NAMESPACE, &resource);
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
    e2e::bare::create(client, Some(Plane::NAMESPACE), private).await?;
    let ready = json!({"ready": true});
    let public = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "labels": labels(names::SERVICE_TYPE_PUBLIC), "ownerReferences": owner},
        "ports": [{"name": "http", "port": number}],
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": ready}, {"addresses": ["10.0.0.2"], "conditions": ready},
        ],
    });
    e2e::bare::create(client, Some(Plane::NAMESPACE), public).await?;
    Ok(uid)
}

fn name(n: usize) -> String {
    format!("asleep-{n:05}")
}

fn number(n: usize) -> anyhow::Result<u16> {
    u16::try_from(n).ok().and_then(|n| FIRST.checked_add(n)).context("there are fewer than 45 536 numbers")
}
