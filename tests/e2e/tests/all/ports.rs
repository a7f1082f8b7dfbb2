//! The workload of a connection follows from the port at which it arrived: through a Service's own address, with any
//! protocol.

use anyhow::{Context, ensure};
use common_api::ZeroScaler;
use common_api::zeroscaler::PortStatus;
use common_runtime::tls::rustls::RootCertStore;
use common_runtime::tls::rustls::pki_types::ServerName;
use common_runtime::tls::{Roots, TlsConnector};
use e2e::talk::{ANSWER, CERTIFICATE, GREETING};
use e2e::test_env::{SOON, program};
use e2e::{Load, TestEnv, Workload};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use local::up::PlaneId;
use local::up::system::NAMESPACE;
use serde_json::{Value, json};
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

#[tokio::test(flavor = "multi_thread")]
async fn services_wake_their_workloads() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    tokio::try_join!(a_workload_wakes_by_each_port_of_its_service(&env), tls_passes_through_to_the_pod(&env))?;
    env.end().await
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
        let other = Load::new(address(env, name, 80).await?, "x").get("/").await?;
        ensure!(other.status == 200, "{name} by its other port");
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
    create_asleep(&env, "first", "client", json!([])).await?;
    env.until_served("first").await?;
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
