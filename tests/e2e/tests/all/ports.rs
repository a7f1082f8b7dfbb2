//! The workload of a connection follows from the port at which it arrived: through a Service's own address, with any
//! protocol.

use anyhow::{Context, ensure};
use common::ports::ledger::{self, Block, Entry, Ledger, NumberState};
use common_api::ZeroScaler;
use common_api::zeroscaler::PortStatus;
use common_runtime::tls::rustls::RootCertStore;
use common_runtime::tls::rustls::pki_types::ServerName;
use common_runtime::tls::{Roots, TlsConnector};
use e2e::talk::{ANSWER, CERTIFICATE, GREETING};
use e2e::test_env::{LINGER, SOON, program};
use e2e::{Load, TestEnv, Workload};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use local::up::system::NAMESPACE;
use local::up::{PlaneId, UpOptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Creates a workload at zero, with HTTP at 8080 and another protocol at 5432, its Service with a port for each, and
/// its ZeroScaler. `first` is the side that speaks first at 5432.
async fn create_asleep(env: &TestEnv, name: &str, first: &str, ports: Value) -> anyhow::Result<()> {
    create_asleep_with(env, name, json!([{"name": "E2E_TALKS", "value": first}]), ports).await
}

/// Does the same; `db` is the environment of the container at 5432.
async fn create_asleep_with(env: &TestEnv, name: &str, db: Value, ports: Value) -> anyhow::Result<()> {
    let workload = Workload::new(name).set("ports", ports);
    let mut deployment = workload.deployment(&program()?);
    let mut second = deployment["spec"]["template"]["spec"]["containers"][0].clone();
    second["name"] = json!("db");
    second["ports"] = json!([{"name": "db", "containerPort": 5432}]);
    second["env"] = db;
    let containers = &mut deployment["spec"]["template"]["spec"]["containers"];
    containers.as_array_mut().context("containers")?.push(second);
    env.create::<Deployment>(deployment).await?;
    env.create::<Service>(json!({"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [
        {"name": "web", "port": 80, "targetPort": 8080}, {"name": "db", "port": 5432, "targetPort": "db"},
    ]}}))
    .await?;
    env.create::<ZeroScaler>(workload.scaler()).await.map(drop)
}

/// Returns a port of a Service's own address.
async fn address(env: &TestEnv, name: &str, port: u16) -> anyhow::Result<SocketAddr> {
    Ok(SocketAddr::new(env.service_address(name).await?.ip(), port))
}

async fn ports(env: &TestEnv, name: &str) -> anyhow::Result<Vec<PortStatus>> {
    Ok(env.scaler(name).await?.status.map(|status| status.ports).unwrap_or_default())
}

/// Returns this test's entries of the ledger: numbers of earlier tests may not be released yet.
async fn ledger_entries(env: &TestEnv) -> anyhow::Result<Ledger> {
    let maps: Api<ConfigMap> = Api::namespaced(env.client.clone(), NAMESPACE);
    let maps = maps.list(&ListParams::default().labels("zeroscale.dev/ledger=ports")).await?;
    let pages = maps.items.iter().filter_map(|map| {
        let block = Block::of_map(map.metadata.name.as_deref()?)?;
        Some(ledger::read(block, map.data.as_ref()).entries)
    });
    Ok(pages.flatten().filter(|(_, entry)| entry.key.namespace() == env.namespace).collect())
}

/// Sends bytes, and reads until `enough` or to the end.
async fn exchange(at: SocketAddr, sent: &[u8], enough: impl Fn(&[u8]) -> bool) -> anyhow::Result<Vec<u8>> {
    within_a_minute(async { exchange_on(TcpStream::connect(at).await?, sent, enough).await }).await
}

async fn exchange_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    sent: &[u8],
    enough: impl Fn(&[u8]) -> bool,
) -> anyhow::Result<Vec<u8>> {
    stream.write_all(sent).await?;
    let mut read = Vec::new();
    while !enough(&read) && stream.read_buf(&mut read).await? > 0 {}
    Ok(read)
}

async fn within_a_minute<T>(answered: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(Duration::from_secs(60), answered).await.context("no answer within a minute")?
}

/// Goal: connections at Services' own addresses wake their workloads: the scenarios below, in one cluster.
#[tokio::test(flavor = "multi_thread")]
async fn services_wake_their_workloads() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    tokio::try_join!(
        a_service_wakes_its_workload_for_any_host(&env),
        a_workload_wakes_by_each_port_of_its_service(&env),
        tls_passes_through_to_the_pod(&env),
        a_service_port_with_a_new_number_wakes_its_workload(&env),
    )?;
    env.end().await
}

/// Goal: a request wakes the workload of the Service at which it arrives, whatever its Host is, or without one.
async fn a_service_wakes_its_workload_for_any_host(env: &TestEnv) -> anyhow::Result<()> {
    let heads = [
        ("stranger", "GET / HTTP/1.1\r\nHost: nobody.example.com\r\nConnection: close\r\n\r\n".to_owned()),
        ("bare", "GET / HTTP/1.1\r\nHost: bare\r\nConnection: close\r\n\r\n".to_owned()),
        ("other", "GET / HTTP/1.1\r\nHost: bare\r\nConnection: close\r\n\r\n".to_owned()),
        ("old", "GET / HTTP/1.0\r\n\r\n".to_owned()),
    ];
    for (name, _) in &heads {
        create_asleep(env, name, "client", json!([])).await?;
    }
    for (name, head) in &heads {
        env.until_served(name).await?;
        let answer = exchange(address(env, name, 80).await?, head.as_bytes(), |_| false).await?;
        let answer = String::from_utf8_lossy(&answer);
        ensure!(answer.starts_with("HTTP/1.") && answer.contains(" 200 "), "{name}: {answer}");
        let pod = format!("x-pod: {name}-");
        ensure!(answer.to_ascii_lowercase().contains(&pod), "a pod of {name} must respond: {answer}");
    }
    for (name, _) in &heads {
        let ip = address(env, name, 80).await?;
        let load = Load::new(ip, ip.to_string());
        ensure!(load.get("/").await?.status == 200, "{name}: its own address as Host");
    }
    Ok(())
}

/// Goal: a Service wakes its workload by each of its ports, and each leads to its own port of the pod; with protocols
/// in which the server speaks first and those in which the client does.
async fn a_workload_wakes_by_each_port_of_its_service(env: &TestEnv) -> anyhow::Result<()> {
    let tcp = || json!([{"name": "web"}, {"name": "db", "protocol": "tcp"}]);
    create_asleep(env, "postgres", "client", tcp()).await?;
    create_asleep(env, "auto", "client", json!([])).await?;
    create_asleep(env, "mysql", "server", tcp()).await?;
    create_asleep(env, "web", "server", tcp()).await?;
    for name in ["postgres", "auto", "mysql", "web"] {
        env.until_served(name).await?;
    }
    // A start-up message of PostgreSQL: length, version 3.0, the user.
    let startup = b"\x00\x00\x00\x10\x00\x03\x00\x00user\x00a\x00\x00";
    let expected = [ANSWER, &startup[..]].concat();
    for name in ["postgres", "auto"] {
        let answer = exchange(address(env, name, 5432).await?, startup, |read| read.len() >= expected.len()).await?;
        ensure!(answer == expected, "{name}: {answer:?}");
        ensure!(
            Load::new(address(env, name, 80).await?, "x").get("/").await?.status == 200,
            "{name} by its other port"
        );
    }
    let greeted = exchange(address(env, "mysql", 5432).await?, b"", |read| read.len() >= GREETING.len()).await?;
    ensure!(greeted == GREETING, "{greeted:?}");
    ensure!(Load::new(address(env, "web", 80).await?, "x").get("/").await?.status == 200, "by HTTP");
    let greeted = exchange(address(env, "web", 5432).await?, b"", |read| read.len() >= GREETING.len()).await?;
    ensure!(greeted == GREETING, "the other port of one that is awake: {greeted:?}");
    Ok(())
}

/// Goal: TLS that ends in the pod arrives there unchanged, at zero and awake, with protocol `tcp` and without a
/// protocol: the client gets the pod's own certificate, for a name that is configured nowhere else.
async fn tls_passes_through_to_the_pod(env: &TestEnv) -> anyhow::Result<()> {
    const NAME: &str = "db.example.com";
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let pem = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let connector = TlsConnector::from(Roots::new(roots)?.config());
    for (name, ports) in [("tls-tcp", json!([{"name": "db", "protocol": "tcp"}])), ("tls-auto", json!([]))] {
        let db = json!([{"name": "E2E_TALKS", "value": "client"}, {"name": CERTIFICATE, "value": &pem}]);
        create_asleep_with(env, name, db, ports).await?;
        env.until_served(name).await?;
        ensure!(env.is_asleep(name).await?, "{name} was woken without a request");
        let at = address(env, name, 5432).await?;
        let expected = [ANSWER, b"hello"].concat();
        for state in ["asleep", "awake"] {
            let answer = within_a_minute(async {
                let stream = TcpStream::connect(at).await?;
                let stream = connector.connect(ServerName::try_from(NAME)?, stream).await?;
                exchange_on(stream, b"hello", |read| read.len() >= expected.len()).await
            });
            let answer = answer.await.with_context(|| format!("{name}, {state}"))?;
            ensure!(answer == expected, "{name}, {state}: {answer:?}");
        }
    }
    Ok(())
}

/// Goal: no two ports share a number. Slices lead to it under the Service's own names, with a condition for each
/// address. A number is released once its object is gone.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_unique_and_are_released() -> anyhow::Result<()> {
    let env = TestEnv::with(UpOptions { activators: 2, linger: LINGER, ..UpOptions::default() }).await?;
    let names = ["one", "two", "three"];
    for name in names {
        create_asleep(&env, name, "client", json!([])).await?;
    }
    let mut all = BTreeSet::new();
    for name in names {
        env.until_served(name).await?;
        for port in ports(&env, name).await? {
            let number = port.number.with_context(|| format!("{name} {}: no number", port.name))?;
            ensure!(all.insert(number), "{number} is given twice");
        }
        let both = async || {
            let slices = env.api::<EndpointSlice>();
            let slices =
                slices.list(&ListParams::default().labels(&format!("kubernetes.io/service-name={name}"))).await?;
            let allocated = ports(&env, name).await?;
            let expected: BTreeSet<_> =
                allocated.iter().map(|port| (port.name.clone(), port.number.map(i32::from))).collect();
            let leads = |slice: &EndpointSlice| {
                let ports = slice.ports.iter().flatten().map(|port| (port.name.clone().unwrap_or_default(), port.port));
                let ready =
                    slice.endpoints.iter().flatten().all(|endpoint| {
                        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
                    });
                ports.collect::<BTreeSet<_>>() == expected && ready && slice.endpoints.iter().flatten().count() == 2
            };
            anyhow::Ok(slices.items.len() == 1 && leads(&slices.items[0]))
        };
        env.until(SOON, "one slice, with both activators", both).await?;
    }
    ensure!(all.len() == 6, "{all:?}");
    let held: BTreeSet<_> = ledger_entries(&env).await?.into_keys().collect();
    ensure!(held == all, "{held:?} are written, {all:?} are in statuses");
    let gone = ports(&env, "two").await?;
    env.api::<ZeroScaler>().delete("two", &DeleteParams::default()).await?;
    let is_released = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.state != NumberState::Held);
    env.until(SOON * 2, "its numbers to be released", async || {
        let entries = ledger_entries(&env).await?;
        Ok(gone.iter().filter_map(|port| port.number).all(|number| is_released(entries.get(&number))))
    })
    .await?;
    deploy_asleep(&env, "four").await?;
    for port in ports(&env, "four").await? {
        let number = port.number.context("a number")?;
        ensure!(all.insert(number), "{number} belonged to another workload a moment ago");
    }
    env.end().await
}

/// Goal: a Service whose only port gets another number while its workload is at zero wakes it by the new number, and
/// the port keeps its number on the activators.
async fn a_service_port_with_a_new_number_wakes_its_workload(env: &TestEnv) -> anyhow::Result<()> {
    let workload = Workload::new("app");
    env.create::<Deployment>(workload.deployment(&program()?)).await?;
    let service = |port: u16| json!({"selector": {"app": "app"}, "ports": [{"port": port, "targetPort": 8080}]});
    env.create::<Service>(json!({"metadata": {"name": "app"}, "spec": service(80)})).await?;
    env.create::<ZeroScaler>(workload.scaler()).await?;
    env.until_served("app").await?;
    let before = ports(env, "app").await?;
    env.patch::<Service>("app", json!({"spec": service(81)})).await?;
    env.until(SOON, "the status to have the new number", async || {
        let now = ports(env, "app").await?;
        Ok(now.len() == 1 && now[0].port == 81 && now[0].number == before[0].number)
    })
    .await?;
    env.until(SOON, "the ledger to have it", async || {
        let entries = ledger_entries(env).await?;
        Ok(entries.values().filter(|entry| entry.key.name() == "app").all(|entry| entry.port.port == 81))
    })
    .await?;
    // Slices may be without an address for a moment.
    let load = Load::new(address(env, "app", 81).await?, "app");
    env.until(SOON, "an answer of the pod", async || Ok(load.get_ok("/").await.is_ok())).await
}

async fn deploy_asleep(env: &TestEnv, name: &str) -> anyhow::Result<()> {
    create_asleep(env, name, "client", json!([])).await?;
    env.until_served(name).await
}

/// Goal: a workload without a port number reports why, and no other workload is affected: first the range is used up,
/// then another process listens on each free number, and gets no client. Other numbers help at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_without_numbers_affects_no_other() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let maps: Api<ConfigMap> = Api::namespaced(env.client.clone(), NAMESPACE);
    let widen = async |range: &str| {
        let patch = Patch::Merge(json!({"data": {"range": range}}));
        maps.patch("config-ports", &PatchParams::default(), &patch).await
    };
    env.configure("config-ports", json!({"range": "21100-21101"})).await?;
    // The edit must reach the autoscaler before the next object does; otherwise the first one moves.
    deploy_asleep(&env, "first").await?;
    let has_numbers_of = async |name: &str, range: RangeInclusive<u16>| {
        let numbers: Vec<_> = ports(&env, name).await?.iter().filter_map(|port| port.number).collect();
        anyhow::Ok(numbers.len() == 2 && numbers.iter().all(|number| range.contains(number)))
    };
    env.until(SOON, "numbers of the range", async || has_numbers_of("first", 21_100..=21_101).await).await?;
    let activator = env.cluster.address(PlaneId::Activator(0)).ip();
    let strangers = [21_102_u16, 21_103].map(|number| TcpListener::bind((activator, number)));
    let strangers: Vec<TcpListener> = strangers.into_iter().collect::<std::io::Result<_>>()?;

    create_asleep(&env, "second", "client", json!([])).await?;
    until_unserved(&env, "RangeExhausted", &["21100-21101"]).await?;
    widen("21100-21103").await?;
    until_unserved(&env, "NumberInUse", &["21102", "21103"]).await?;
    let answer = Load::new(address(&env, "second", 80).await?, "x").get("/").await;
    ensure!(answer.is_err(), "no activator may listen: {answer:?}");
    ensure!(Load::new(address(&env, "first", 80).await?, "x").get("/").await?.status == 200, "the other one works");

    widen("21100-21110").await?;
    env.until_served("second").await?;
    ensure!(has_numbers_of("second", 21_104..=21_110).await?, "{:?}", ports(&env, "second").await?);
    ensure!(Load::new(address(&env, "second", 80).await?, "x").get("/").await?.status == 200, "woken");
    for stranger in strangers {
        stranger.set_nonblocking(true)?;
        let called = stranger.accept().map(|(_, from)| from);
        ensure!(called.is_err(), "{stranger:?} was called by {called:?}");
    }
    maps.delete("config-ports", &DeleteParams::default()).await?;
    env.end().await
}

/// Waits until the workload `second` reports this reason, with a message that contains all of `parts`.
async fn until_unserved(env: &TestEnv, reason: &str, parts: &[&str]) -> anyhow::Result<()> {
    env.until(SOON * 2, reason, async || {
        let object = env.scaler("second").await?;
        let reports = |type_: &str| {
            object.condition(type_).is_some_and(|condition| {
                let names_all = parts.iter().all(|part| condition.message.contains(part));
                condition.status == "False" && condition.reason == reason && names_all
            })
        };
        Ok(reports("PortsAllocated") && reports("Ready"))
    })
    .await
}
