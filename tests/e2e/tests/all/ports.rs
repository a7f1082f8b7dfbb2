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
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use local::up::system::NAMESPACE;
use local::up::{PlaneId, UpOptions};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// Creates a workload at zero, with HTTP at 8080 and another protocol at 5432, its Service with a port for each, and
/// its ZeroScaler. `talks`: the side that speaks first at 5432.
async fn asleep(env: &TestEnv, name: &str, talks: &str, ports: Value) -> anyhow::Result<()> {
    asleep_as(env, name, json!([{"name": "E2E_TALKS", "value": talks}]), ports).await
}

/// Does the same; `db`: environment of the container at 5432.
async fn asleep_as(env: &TestEnv, name: &str, db: Value, ports: Value) -> anyhow::Result<()> {
    let mut deployment = Workload::new(name).deployment(&program()?);
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
    env.create::<ZeroScaler>(
        json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "metadata": {"name": name},
        "spec": {"target": {"kind": "Deployment", "name": name}, "scale": {"window": "6s"}, "ports": ports}}),
    )
    .await?;
    Ok(())
}

async fn until_ready(env: &TestEnv, name: &str) -> anyhow::Result<()> {
    env.until(SOON, "Ready", async || Ok(env.api::<ZeroScaler>().get(name).await?.is_ready())).await
}

/// Returns a port of a Service's own address.
async fn address(env: &TestEnv, name: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let spec = env.api::<Service>().get(name).await?.spec.context("a spec")?;
    Ok(SocketAddr::new(spec.cluster_ip.context("a cluster IP")?.parse()?, port))
}

async fn ports(env: &TestEnv, name: &str) -> anyhow::Result<Vec<PortStatus>> {
    Ok(env.api::<ZeroScaler>().get(name).await?.status.map(|status| status.ports).unwrap_or_default())
}

/// Returns the lines of the ledger that belong to this test: numbers of other tests may not be released yet.
async fn lines(env: &TestEnv) -> anyhow::Result<Ledger> {
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
    patient(async { exchange_on(TcpStream::connect(at).await?, sent, enough).await }).await
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

async fn patient<T>(answered: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(Duration::from_secs(60), answered).await.context("no answer within a minute")?
}

/// Goal: a request wakes the workload of the Service at which it arrives, whatever its Host is, or without one.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_wakes_its_workload_whatever_host_is_named() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let heads = [
        ("stranger", "GET / HTTP/1.1\r\nHost: nobody.example.com\r\nConnection: close\r\n\r\n".to_owned()),
        ("bare", "GET / HTTP/1.1\r\nHost: bare\r\nConnection: close\r\n\r\n".to_owned()),
        ("other", "GET / HTTP/1.1\r\nHost: bare\r\nConnection: close\r\n\r\n".to_owned()),
        ("old", "GET / HTTP/1.0\r\n\r\n".to_owned()),
    ];
    for (name, _) in &heads {
        asleep(&env, name, "client", json!([])).await?;
    }
    for (name, head) in &heads {
        until_ready(&env, name).await?;
        let answer = exchange(address(&env, name, 80).await?, head.as_bytes(), |_| false).await?;
        let answer = String::from_utf8_lossy(&answer);
        ensure!(answer.starts_with("HTTP/1.") && answer.contains(" 200 "), "{name}: {answer}");
        let pod = format!("x-pod: {name}-");
        ensure!(answer.to_ascii_lowercase().contains(&pod), "{name} was woken, and nobody else: {answer}");
    }
    for (name, _) in &heads {
        let ip = address(&env, name, 80).await?;
        let load = Load::new(ip, ip.to_string());
        ensure!(load.get("/").await?.status == 200, "{name}: its own address as Host");
    }
    env.end().await;
    Ok(())
}

/// Goal: a Service wakes its workload by each of its ports, and each leads to its own port of the pod; with protocols
/// in which the server speaks first and those in which the client does.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_wakes_by_each_port_of_its_service() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let tcp = || json!([{"name": "web"}, {"name": "db", "protocol": "tcp"}]);
    asleep(&env, "postgres", "client", tcp()).await?;
    asleep(&env, "auto", "client", json!([])).await?;
    asleep(&env, "mysql", "server", tcp()).await?;
    asleep(&env, "web", "server", tcp()).await?;
    for name in ["postgres", "auto", "mysql", "web"] {
        until_ready(&env, name).await?;
    }
    // A start-up message of PostgreSQL: length, version 3.0, the user.
    let startup = b"\x00\x00\x00\x10\x00\x03\x00\x00user\x00a\x00\x00";
    let expected = [ANSWER, &startup[..]].concat();
    for name in ["postgres", "auto"] {
        let answer = exchange(address(&env, name, 5432).await?, startup, |read| read.len() >= expected.len()).await?;
        ensure!(answer == expected, "{name}: {answer:?}");
        ensure!(
            Load::new(address(&env, name, 80).await?, "x").get("/").await?.status == 200,
            "{name} by its other port"
        );
    }
    let greeted = exchange(address(&env, "mysql", 5432).await?, b"", |read| read.len() >= GREETING.len()).await?;
    ensure!(greeted == GREETING, "{greeted:?}");
    ensure!(Load::new(address(&env, "web", 80).await?, "x").get("/").await?.status == 200, "by HTTP");
    let greeted = exchange(address(&env, "web", 5432).await?, b"", |read| read.len() >= GREETING.len()).await?;
    ensure!(greeted == GREETING, "the other port of one that is awake: {greeted:?}");
    env.end().await;
    Ok(())
}

/// Goal: TLS that ends in the pod arrives there unchanged, at zero and awake, with protocol `tcp` and without a
/// protocol: the client gets the pod's own certificate, for a name that is configured nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn tls_passes_through_to_the_pod() -> anyhow::Result<()> {
    const NAME: &str = "db.example.com";
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let pem = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let connector = TlsConnector::from(Roots::new(roots)?.config());
    let env = TestEnv::start().await?;
    for (name, ports) in [("tcp", json!([{"name": "db", "protocol": "tcp"}])), ("auto", json!([]))] {
        let db = json!([{"name": "E2E_TALKS", "value": "client"}, {"name": CERTIFICATE, "value": &pem}]);
        asleep_as(&env, name, db, ports).await?;
        until_ready(&env, name).await?;
        ensure!(env.is_asleep(name).await?, "{name} has been woken by nobody");
        let at = address(&env, name, 5432).await?;
        let expected = [ANSWER, b"hello"].concat();
        for state in ["asleep", "awake"] {
            let answer = patient(async {
                let stream = TcpStream::connect(at).await?;
                let stream = connector.connect(ServerName::try_from(NAME)?, stream).await?;
                exchange_on(stream, b"hello", |read| read.len() >= expected.len()).await
            });
            let answer = answer.await.with_context(|| format!("{name}, {state}"))?;
            ensure!(answer == expected, "{name}, {state}: {answer:?}");
        }
    }
    env.end().await;
    Ok(())
}

/// Goal: no two ports share a number. Slices lead to it under the Service's own names, with a condition for each
/// address. A number is released once its object is gone.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_nobody_elses_and_are_released() -> anyhow::Result<()> {
    let env = TestEnv::with(UpOptions { activators: 2, linger: LINGER, ..UpOptions::default() }).await?;
    let names = ["one", "two", "three"];
    for name in names {
        asleep(&env, name, "client", json!([])).await?;
    }
    let mut all = BTreeSet::new();
    for name in names {
        until_ready(&env, name).await?;
        for port in ports(&env, name).await? {
            let number = port.number.with_context(|| format!("{name} {}: no number", port.name))?;
            ensure!(all.insert(number), "{number} is given twice");
        }
        let both = async || {
            let slices = env.api::<EndpointSlice>();
            let slices =
                slices.list(&ListParams::default().labels(&format!("kubernetes.io/service-name={name}"))).await?;
            let told = ports(&env, name).await?;
            let expected: BTreeSet<_> =
                told.iter().map(|port| (port.name.clone(), port.number.map(i32::from))).collect();
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
    let held: BTreeSet<_> = lines(&env).await?.into_keys().collect();
    ensure!(held == all, "{held:?} are written, {all:?} are told");
    let gone = ports(&env, "two").await?;
    env.api::<ZeroScaler>().delete("two", &DeleteParams::default()).await?;
    let is_released = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.state != NumberState::Held);
    env.until(SOON * 2, "its numbers to be released", async || {
        let lines = lines(&env).await?;
        Ok(gone.iter().filter_map(|port| port.number).all(|number| is_released(lines.get(&number))))
    })
    .await?;
    asleep_again(&env, "four").await?;
    for port in ports(&env, "four").await? {
        let number = port.number.context("a number")?;
        ensure!(all.insert(number), "{number} was somebody else's a moment ago");
    }
    env.end().await;
    Ok(())
}

/// Goal: a Service whose only port gets another number while its workload is at zero wakes it by the new number, and
/// the port keeps its number on the activators.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_renumbered_wakes_its_workload() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    env.create::<Deployment>(Workload::new("app").deployment(&program()?)).await?;
    let service = |port: u16| json!({"selector": {"app": "app"}, "ports": [{"port": port, "targetPort": 8080}]});
    env.create::<Service>(json!({"metadata": {"name": "app"}, "spec": service(80)})).await?;
    env.create::<ZeroScaler>(
        json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "metadata": {"name": "app"},
        "spec": {"target": {"kind": "Deployment", "name": "app"}, "scale": {"window": "6s"}}}),
    )
    .await?;
    until_ready(&env, "app").await?;
    let before = ports(&env, "app").await?;
    let edit = Patch::Merge(json!({"spec": service(81)}));
    env.api::<Service>().patch("app", &PatchParams::default(), &edit).await?;
    env.until(SOON, "the status to have the new number", async || {
        let now = ports(&env, "app").await?;
        Ok(now.len() == 1 && now[0].port == 81 && now[0].number == before[0].number)
    })
    .await?;
    env.until(SOON, "the ledger to have it", async || Ok(lines(&env).await?.values().all(|line| line.port.port == 81)))
        .await?;
    // Slices may be without an address for a moment.
    let load = Load::new(address(&env, "app", 81).await?, "app");
    env.until(SOON, "an answer of the pod", async || Ok(load.get("/").await.is_ok_and(|answer| answer.status == 200)))
        .await?;
    env.end().await;
    Ok(())
}

async fn asleep_again(env: &TestEnv, name: &str) -> anyhow::Result<()> {
    asleep(env, name, "client", json!([])).await?;
    until_ready(env, name).await
}

/// Goal: a workload that gets no port number reports that, and no other workload is affected; a larger range helps at
/// once.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_is_used_up_is_one_objects_condition() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let maps: Api<ConfigMap> = Api::namespaced(env.client.clone(), NAMESPACE);
    let range = |range: &str| json!({"metadata": {"name": "config-ports"}, "data": {"range": range}});
    maps.create(&PostParams::default(), &serde_json::from_value(range("21000-21001"))?).await?;
    // The edit must reach the autoscaler before the next object does; otherwise the first one moves.
    asleep_again(&env, "first").await?;
    env.until(SOON, "numbers of the new range", async || {
        let numbers = ports(&env, "first").await?;
        Ok(numbers.iter().all(|port| port.number.is_some_and(|number| (21_000..=21_001).contains(&number))))
    })
    .await?;
    asleep(&env, "second", "client", json!([])).await?;
    env.until(SOON, "a condition that says so", async || {
        let object = env.api::<ZeroScaler>().get("second").await?;
        let says = |type_: &str| {
            let condition = object.condition(type_)?;
            Some((condition.status == "False", condition.reason.clone(), condition.message.contains("21000-21001")))
        };
        let expected = Some((true, "RangeExhausted".to_owned(), true));
        Ok(says("PortsAllocated") == expected && says("Ready") == expected)
    })
    .await?;
    let at = address(&env, "first", 80).await?;
    ensure!(Load::new(at, "x").get("/").await?.status == 200, "the other one goes on");
    maps.patch("config-ports", &PatchParams::default(), &Patch::Merge(range("21000-21010"))).await?;
    until_ready(&env, "second").await?;
    let at = address(&env, "second", 80).await?;
    ensure!(Load::new(at, "x").get("/").await?.status == 200, "woken");
    maps.delete("config-ports", &DeleteParams::default()).await?;
    env.end().await;
    Ok(())
}

/// Goal: a number on which another process listens is a condition of one object, and leads no client to that process;
/// other workloads continue. As soon as other numbers exist, the object gets those.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_another_process_has_is_one_objects_condition() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let maps: Api<ConfigMap> = Api::namespaced(env.client.clone(), NAMESPACE);
    let range = |range: &str| json!({"metadata": {"name": "config-ports"}, "data": {"range": range}});
    maps.create(&PostParams::default(), &serde_json::from_value(range("21100-21103"))?).await?;
    asleep_again(&env, "first").await?;
    let given = async |name: &str, range: RangeInclusive<u16>| {
        let numbers: Vec<_> = ports(&env, name).await?.iter().filter_map(|port| port.number).collect();
        anyhow::Ok(Some(numbers).filter(|given| given.len() == 2 && given.iter().all(|given| range.contains(given))))
    };
    env.until(SOON, "numbers of the range", async || Ok(given("first", 21_100..=21_103).await?.is_some())).await?;
    let taken = given("first", 21_100..=21_103).await?.context("numbers")?;
    let activator = env.cluster.address(PlaneId::Activator(0)).ip();
    let strangers = (21_100..=21_103).filter(|number| !taken.contains(number)).map(|number| {
        let stranger = TcpListener::bind((activator, number))?;
        stranger.set_nonblocking(true)?;
        Ok((number, stranger))
    });
    let strangers: BTreeMap<u16, TcpListener> = strangers.collect::<std::io::Result<_>>()?;
    ensure!(strangers.len() == 2, "{taken:?} are the first one's");

    asleep(&env, "second", "client", json!([])).await?;
    env.until(SOON * 2, "a condition that says so", async || {
        let object = env.api::<ZeroScaler>().get("second").await?;
        let says = |type_: &str| {
            let condition = object.condition(type_)?;
            let named = strangers.keys().all(|number| condition.message.contains(&number.to_string()));
            Some((condition.status == "False", condition.reason.clone(), named))
        };
        let expected = Some((true, "NumberInUse".to_owned(), true));
        Ok(says("PortsAllocated") == expected && says("Ready") == expected)
    })
    .await?;
    let answer = Load::new(address(&env, "second", 80).await?, "x").get("/").await;
    ensure!(answer.is_err(), "{answer:?}, from nowhere");
    ensure!(Load::new(address(&env, "first", 80).await?, "x").get("/").await?.status == 200, "the other one goes on");

    maps.patch("config-ports", &PatchParams::default(), &Patch::Merge(range("21100-21110"))).await?;
    until_ready(&env, "second").await?;
    ensure!(given("second", 21_104..=21_110).await?.is_some(), "{:?}", ports(&env, "second").await?);
    ensure!(Load::new(address(&env, "second", 80).await?, "x").get("/").await?.status == 200, "woken");
    for (number, stranger) in strangers {
        let called = stranger.accept().map(|(_, from)| from);
        ensure!(called.is_err(), "{number} was called by {called:?}");
    }
    maps.delete("config-ports", &DeleteParams::default()).await?;
    env.end().await;
    Ok(())
}

/// Returns how often activators are rolled, and the minimum number of requests; `E2E_ROLLS` overrides them, such as
/// `10,100000`.
fn rolls() -> anyhow::Result<(usize, usize)> {
    let said = std::env::var("E2E_ROLLS").unwrap_or_else(|_| "2,200".to_owned());
    let (rolls, requests) = said.split_once(',').context("E2E_ROLLS: ROLLS,REQUESTS")?;
    Ok((rolls.parse()?, requests.parse()?))
}

/// Goal: activators that are rolled under load cost no request at the Services' own addresses: neither of a workload
/// that is awake, nor of one that is called at the moment when an activator has to end.
#[tokio::test(flavor = "multi_thread")]
async fn activators_that_are_rolled_cost_no_request() -> anyhow::Result<()> {
    let (rolls, requests) = rolls()?;
    let env = TestEnv::with(UpOptions { activators: 2, linger: LINGER, ..UpOptions::default() }).await?;
    asleep_again(&env, "rolled").await?;
    let load = Load::new(address(&env, "rolled", 80).await?, "rolled");
    ensure!(load.get("/").await?.status == 200, "woken");
    let (mut rolled, mut answered) = (0, 0);
    while rolled < rolls || answered < requests {
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (load, stop) = (load.clone(), stop.clone());
            async move { load.steady(8, "/", stop).await }
        });
        for n in 0..2 {
            let sleeper = format!("sleeper-{rolled}-{n}");
            asleep_again(&env, &sleeper).await?;
            env.until_led(&sleeper, 2).await?;
            let call = Load::new(address(&env, &sleeper, 80).await?, "sleeper");
            let called = tokio::spawn(async move { call.get("/").await });
            env.cluster.drain_plane(PlaneId::Activator(n)).await;
            env.cluster.start_plane(PlaneId::Activator(n))?;
            env.cluster.ready_planes(3).await;
            // Like a Deployment's rollout: the next one ends when the one before is in the path.
            env.until_led("rolled", 2).await?;
            let answer = called.await?.with_context(|| sleeper.clone())?;
            ensure!(answer.status == 200, "{sleeper}: {answer:?}");
            env.api::<ZeroScaler>().delete(&sleeper, &DeleteParams::default()).await?;
            env.api::<Deployment>().delete(&sleeper, &DeleteParams::default()).await?;
        }
        stop.cancel();
        let outcome = running.await?;
        outcome.none_lost().with_context(|| format!("roll {rolled}, after {answered} requests"))?;
        (rolled, answered) = (rolled + 1, answered + outcome.ok);
    }
    eprintln!("{answered} requests and {} wakes through {rolled} rolls", 2 * rolled);
    env.end().await;
    Ok(())
}
