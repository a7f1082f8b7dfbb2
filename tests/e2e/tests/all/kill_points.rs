//! Planes that fail in the middle of a sequence of writes, as separate processes: each is killed after each write, a
//! leader freezes before each write and is thawed when its successor has finished, and clocks are set. Afterwards each
//! Service is as its owner wrote it, no restored workload is at zero, and each allocated port number has a ZeroScaler.

use anyhow::{Context, ensure};
use common::names;
use common::ports::ledger::{self, Block, Entry, NumberState};
use common_api::ZeroScaler;
use e2e::load::metrics;
use e2e::parts::{Parts, Plane};
use e2e::space::{ASLEEP, SOON, comparable, program};
use e2e::tap::{Held, Stopped, Tap};
use e2e::{Load, Process, Space, Workload};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use local::up::system::NAMESPACE;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use tempfile::TempDir;

/// Maximum number of writes of one sequence, far more than there are.
const WRITES_MAX: usize = 40;

/// Workload as its owner wrote it.
struct Owned {
    workload: Workload,
    service: String,
}

impl Owned {
    async fn create(space: &Space, workload: Workload) -> anyhow::Result<Self> {
        space.create::<Deployment>(workload.deployment(&program()?)).await?;
        let service = comparable(space.create::<Service>(workload.service()).await?)?;
        Ok(Self { workload, service })
    }

    fn name(&self) -> &str {
        &self.workload.name
    }

    async fn adopt(&self, space: &Space) -> anyhow::Result<()> {
        space.create::<ZeroScaler>(self.workload.scaler()).await.map(|_| ())
    }

    async fn delete_scaler(&self, space: &Space) -> anyhow::Result<()> {
        space.api::<ZeroScaler>().delete(self.name(), &DeleteParams::default()).await?;
        Ok(())
    }

    /// Checks that its ZeroScaler has left it as its owner wrote it, with at least one replica.
    async fn is_restored(&self, space: &Space) -> anyhow::Result<()> {
        let name = self.name();
        let service = comparable(space.api::<Service>().get(name).await?)?;
        ensure!(service == self.service, "{service} instead of {}", self.service);
        ensure!(space.replicas(name).await? >= 1, "{name} is left at zero");
        let ours = ListParams::default().labels(&format!("{}={}", names::SLICE_MANAGED_BY, names::MANAGED_BY));
        let has_no_slice = async || {
            let slices = space.api::<EndpointSlice>().list(&ours).await?;
            Ok(!slices.iter().any(|slice| slice.name_any().starts_with(name)))
        };
        space.until(SOON, &format!("no slice of ours for {name}"), has_no_slice).await
    }
}

/// Checks that each Service has its selector, an annotation with it, or an owner of ours.
async fn no_selector_is_lost(space: &Space) -> anyhow::Result<()> {
    for service in space.api::<Service>().list(&ListParams::default()).await? {
        let has_selector = service.spec.as_ref().is_some_and(|spec| spec.selector.is_some());
        let is_recorded = service.annotations().contains_key(names::ADOPTED_SELECTOR);
        ensure!(has_selector || is_recorded || service.metadata.owner_references.is_some(), "{}", service.name_any());
    }
    Ok(())
}

/// Waits until all numbers of the ledger are held by existing ZeroScalers or released, one for each.
async fn no_number_is_leaked(space: &Space) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(space.client.clone(), NAMESPACE);
    let labels = ListParams::default().labels(&format!("{}={}", names::LEDGER, names::LEDGER_OF_PORTS));
    let mut numbers = BTreeMap::<String, usize>::new();
    space
        .until(SOON, "numbers of existing ZeroScalers alone", async || {
            let scalers = space.api::<ZeroScaler>().list(&ListParams::default()).await?;
            let known: BTreeSet<String> = scalers.iter().filter_map(ResourceExt::uid).collect();
            numbers.clear();
            let mut is_leaked = false;
            for map in maps.list(&labels).await? {
                let block = Block::of_map(&map.name_any()).context("a block")?;
                let lines = ledger::read(block, map.data.as_ref()).entries.into_values();
                for Entry { uid, .. } in lines.filter(|line| line.state == NumberState::Held) {
                    is_leaked |= !known.contains(&*uid);
                    *numbers.entry(uid.to_string()).or_default() += 1;
                }
            }
            Ok(!is_leaked)
        })
        .await?;
    ensure!(numbers.values().all(|count| *count == 1), "{numbers:?}");
    Ok(())
}

/// One of each plane; the autoscaler's writes are observed.
struct Pair {
    parts: Parts,
    tap: Tap,
    autoscaler: Process,
    activator: Process,
}

impl Pair {
    async fn start() -> anyhow::Result<Self> {
        let parts = Parts::start().await?;
        let tap = Tap::start(&parts.kubeconfig).await?;
        let autoscaler = parts.start_plane(parts.autoscaler, tap.kubeconfig(), &[]).await?;
        parts.publish(parts.autoscaler, true).await?;
        let activator = parts.run(parts.activator).await?;
        Ok(Self { parts, tap, autoscaler, activator })
    }

    /// Waits for `state`. If the autoscaler first makes its `n`-th write that matches `pattern`, kills a plane after it
    /// and starts the plane again. Returns that write.
    async fn wait_and_kill(
        &mut self,
        victim: Victim,
        (pattern, n): (&str, usize),
        space: &Space,
        state: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<Option<String>> {
        let mut stopped = self.tap.stop(pattern, n, Held::Response);
        let mut state = pin!(state);
        let write = tokio::select! {
            write = stopped.wait_for(Option::is_some) => write?.clone().context("just found")?,
            reached = &mut state => {
                self.tap.clear();
                return reached.map(|()| None);
            }
        };
        let (plane, kubeconfig, process) = match victim {
            Victim::Autoscaler => (self.parts.autoscaler, self.tap.kubeconfig(), &mut self.autoscaler),
            Victim::Activator => (self.parts.activator, self.parts.kubeconfig.as_path(), &mut self.activator),
        };
        process.kill().await?;
        self.parts.publish(plane, false).await?;
        no_selector_is_lost(space).await?;
        self.tap.clear();
        *process = self.parts.start_plane(plane, kubeconfig, &[]).await?;
        self.parts.publish(plane, true).await?;
        state.await.with_context(|| format!("killed after write {n}: {write}"))?;
        Ok(Some(write))
    }
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    Autoscaler,
    Activator,
}

/// Adopts and restores one workload for each number `n`, and kills the victim after the `n`-th write of either; then
/// after each kind of write whose place in the sequence varies.
async fn kill_after_each_write(victim: Victim) -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let space = Space::create_in(pair.parts.client.clone()).await?;
    let kinds = ["/services/", "/configmaps"].map(|kind| (kind, 1));
    let mut rows = VecDeque::from_iter((1..=WRITES_MAX).map(|n| ("", n)).chain(kinds));
    let mut names = (1..).map(|n| format!("w-{n:02}"));
    while let Some(row) = rows.pop_front() {
        let name = names.next().context("endless")?;
        let owned = Owned::create(&space, Workload::new(&name)).await?;
        owned.adopt(&space).await?;
        let adopting = pair.wait_and_kill(victim, row, &space, space.until_served(&name)).await?;
        owned.delete_scaler(&space).await?;
        let restored = async {
            space.until_gone(&name).await?;
            owned.is_restored(&space).await?;
            no_number_is_leaked(&space).await
        };
        let restoring = pair.wait_and_kill(victim, row, &space, restored).await?;
        eprintln!("{victim:?} {row:?}: {adopting:?} {restoring:?}");
        if row.0.is_empty() && adopting.is_none() && restoring.is_none() {
            ensure!(row.1 < WRITES_MAX, "the sequence does not end");
            rows.retain(|(pattern, _)| !pattern.is_empty());
        }
    }
    let last = Owned::create(&space, Workload::new("last")).await?;
    last.adopt(&space).await?;
    space.until_served("last").await?;
    let load = Load::new(pair.parts.activator.address, format!("last.{}", space.namespace));
    load.get_ok("/").await?;
    pair.parts.end(pair.activator, pair.autoscaler).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_may_be_killed_after_each_write() -> anyhow::Result<()> {
    kill_after_each_write(Victim::Autoscaler).await
}

/// The activator must confirm port numbers.
#[tokio::test(flavor = "multi_thread")]
async fn an_activator_may_be_killed_after_each_write() -> anyhow::Result<()> {
    kill_after_each_write(Victim::Activator).await
}

/// Two autoscalers that compete for one lease.
struct Rivals {
    parts: Parts,
    planes: [Plane; 2],
    taps: [Tap; 2],
    processes: [Process; 2],
    activator: Process,
    leader: usize,
}

impl Rivals {
    /// Starts both, and the activator. Returns them with a namespace.
    async fn start() -> anyhow::Result<(Self, Space)> {
        let parts = Parts::start().await?;
        let space = Space::create_in(parts.client.clone()).await?;
        let election = json!({"buckets": "1", "lease-duration": "8s", "renew-deadline": "6s", "retry-period": "1s"});
        space.configure("config-leader-election", election).await?;
        let planes = [parts.autoscaler, parts.second_autoscaler()];
        let taps = [Tap::start(&parts.kubeconfig).await?, Tap::start(&parts.kubeconfig).await?];
        let first = parts.start_plane(planes[0], taps[0].kubeconfig(), &[]).await?;
        let second = parts.start_plane(planes[1], taps[1].kubeconfig(), &[]).await?;
        parts.publish_all(&planes.map(|plane| (plane, true))).await?;
        let activator = parts.run(parts.activator).await?;
        let mut rivals = Self { parts, planes, taps, processes: [first, second], activator, leader: 0 };
        space.until(SOON, "a leader", async || Ok(rivals.holder().await?.is_some())).await?;
        rivals.leader = rivals.holder().await?.context("just found")?;
        Ok((rivals, space))
    }

    async fn holder(&self) -> anyhow::Result<Option<usize>> {
        let leases: Api<Lease> = Api::namespaced(self.parts.client.clone(), NAMESPACE);
        let lease = leases.get_opt(&common::ownership::bucket_names(1)[0]).await?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        Ok(self.planes.iter().position(|plane| holder.ends_with(&plane.address.ip().to_string())))
    }

    /// Waits until each of `stops` is reached, or `state` holds for its name, and freezes the leader. Its successor
    /// then does `then`. Afterwards the frozen leader's writes arrive, and the leader is thawed.
    async fn freeze(
        &mut self,
        space: &Space,
        stops: &[(String, Stopped)],
        state: impl AsyncFn(&str) -> anyhow::Result<bool>,
        then: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let (former, next) = (self.leader, 1 - self.leader);
        let has_written = async || {
            for (name, stopped) in stops {
                if stopped.borrow().is_none() && !state(name).await? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        space.until(SOON, "the leader's writes", has_written).await?;
        ensure!(self.taps[former].pending() > 0, "no write is under way");
        let published = |is_frozen: bool| {
            self.planes.map(|plane| (plane, !is_frozen || plane.address != self.planes[former].address))
        };
        self.processes[former].freeze()?;
        self.parts.publish_all(&published(true)).await?;
        space.until(SOON, "another leader", async || Ok(self.holder().await? == Some(next))).await?;
        then.await?;
        self.taps[former].clear();
        let tap = &self.taps[former];
        space.until(SOON, "the late writes", async || Ok(tap.pending() == 0)).await?;
        self.processes[former].thaw()?;
        self.parts.publish_all(&published(false)).await?;
        let admin: std::net::SocketAddr = (self.planes[former].address.ip(), 9090).into();
        let is_followed = async || {
            let page = metrics(admin).await?;
            let is = |name: &str, value: &str| page.lines().any(|line| line.starts_with(name) && line.ends_with(value));
            Ok(is("zeroscale_lease_held{", "} 0") && is("zeroscale_lease_owned{", "} 1"))
        };
        space.until(SOON, "the former leader to recognize its successor", is_followed).await?;
        ensure!(self.holder().await? == Some(next), "the leader has changed again");
        self.leader = next;
        Ok(())
    }

    async fn end(self) -> anyhow::Result<()> {
        let [first, second] = self.processes;
        let code = second.terminate().await?.code();
        ensure!(code == Some(0), "it ends with {code:?}");
        self.parts.end(self.activator, first).await
    }
}

/// Number of workloads; for each, a different write is late.
const WORKLOADS: usize = 10;

async fn create_all(space: &Space, prefix: &str) -> anyhow::Result<Vec<Owned>> {
    let names = (1..=WORKLOADS).map(|n| format!("{prefix}-{n:02}"));
    try_join_all(names.map(|name| Owned::create(space, Workload::new(&name)))).await
}

/// Holds back the first write about the first workload, the second about the second, and so on.
fn stop_each(tap: &Tap, all: &[Owned]) -> Vec<(String, Stopped)> {
    all.iter().zip(1..).map(|(one, n)| (one.name().to_owned(), tap.stop(one.name(), n, Held::Request))).collect()
}

async fn restore_all(space: &Space, all: &[Owned]) -> anyhow::Result<()> {
    try_join_all(all.iter().map(|owned| owned.delete_scaler(space))).await?;
    try_join_all(all.iter().map(|owned| space.until_gone(owned.name()))).await?;
    Ok(())
}

async fn all_are_restored(space: &Space, all: &[Owned]) -> anyhow::Result<()> {
    for owned in all {
        owned.is_restored(space).await?;
    }
    no_number_is_leaked(space).await
}

/// Goal: a leader that freezes with writes under way harms nothing when they arrive after its successor has adopted and
/// restored the workloads, and when it thaws. Method: for each workload, another write is late.
#[tokio::test(flavor = "multi_thread")]
async fn late_writes_of_a_leader_that_froze_while_adopting_are_harmless() -> anyhow::Result<()> {
    let (mut rivals, space) = Rivals::start().await?;
    for kind in ["/configmaps", ""] {
        let all = create_all(&space, if kind.is_empty() { "each" } else { "ledger" }).await?;
        let tap = &rivals.taps[rivals.leader];
        let stops = match kind.is_empty() {
            true => stop_each(tap, &all),
            false => vec![(all[0].name().to_owned(), tap.stop(kind, 1, Held::Request))],
        };
        try_join_all(all.iter().map(|owned| owned.adopt(&space))).await?;
        let then = async {
            try_join_all(all.iter().map(|owned| space.until_served(owned.name()))).await?;
            restore_all(&space, &all).await
        };
        rivals.freeze(&space, &stops, async |name| Ok(space.scaler(name).await?.is_ready()), then).await?;
        all_are_restored(&space, &all).await?;
    }
    rivals.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_of_a_leader_that_froze_while_restoring_are_harmless() -> anyhow::Result<()> {
    let (mut rivals, space) = Rivals::start().await?;
    let all = create_all(&space, "each").await?;
    try_join_all(all.iter().map(|owned| owned.adopt(&space))).await?;
    try_join_all(all.iter().map(|owned| space.until_served(owned.name()))).await?;
    let stops = stop_each(&rivals.taps[rivals.leader], &all);
    try_join_all(all.iter().map(|owned| owned.delete_scaler(&space))).await?;
    let then = async { try_join_all(all.iter().map(|owned| space.until_gone(owned.name()))).await.map(|_| ()) };
    let is_gone = async |name: &str| Ok(space.api::<ZeroScaler>().get_opt(name).await?.is_none());
    rivals.freeze(&space, &stops, is_gone, then).await?;
    all_are_restored(&space, &all).await?;
    rivals.end().await
}

/// Goal: a leader that freezes after it has scaled a workload to zero, and thaws when its successor has restored the
/// workload, does not scale it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_froze_while_scaling_to_zero_does_not_scale_again() -> anyhow::Result<()> {
    let (mut rivals, space) = Rivals::start().await?;
    let awake = [Owned::create(&space, Workload::new("awake").replicas(1)).await?];
    awake[0].adopt(&space).await?;
    let stops = [("awake".to_owned(), rivals.taps[rivals.leader].stop("/scale", 1, Held::Response))];
    rivals.freeze(&space, &stops, async |_| Ok(false), restore_all(&space, &awake)).await?;
    all_are_restored(&space, &awake).await?;
    rivals.end().await
}

/// Source of a library that shifts a process's wall clock by the seconds in a file, and no other clock.
const CLOCK: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static const volatile long *seconds;
__attribute__((constructor)) static void begin(void) {
    seconds = mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, open(getenv("CLOCK_OFFSET"), O_RDONLY), 0);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && seconds) now->tv_sec += *seconds;
    return result;
}
"#;

struct Clock {
    folder: TempDir,
    offset: File,
}

impl Clock {
    async fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("clock.c"), CLOCK)?;
        let mut compile = tokio::process::Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o", "clock.so", "clock.c"]).current_dir(folder.path());
        ensure!(compile.status().await?.success(), "cc fails");
        let offset = File::create(folder.path().join("offset"))?;
        let clock = Self { folder, offset };
        clock.set(0)?;
        Ok(clock)
    }

    fn set(&self, seconds: i64) -> anyhow::Result<()> {
        Ok(self.offset.write_all_at(&seconds.to_ne_bytes(), 0)?)
    }

    fn environment(&self) -> [(&'static str, String); 2] {
        let path = |file: &str| self.folder.path().join(file).display().to_string();
        [("LD_PRELOAD", path("clock.so")), ("CLOCK_OFFSET", path("offset"))]
    }
}

/// Sets the victim's clock forward and back by an hour. Each time a workload wakes and scales to zero, another one is
/// adopted and restored, and a busy one loses neither pods nor requests.
async fn set_clock_of(victim: Victim) -> anyhow::Result<()> {
    let parts = Parts::start().await?;
    let (clock, right) = (Clock::new().await?, Clock::new().await?);
    let clocks = match victim {
        Victim::Autoscaler => [&clock, &right],
        Victim::Activator => [&right, &clock],
    };
    let environment = parts.environment(parts.autoscaler, &parts.kubeconfig, &clocks[0].environment());
    let (autoscaler, log) = Process::start_logged("autoscaler", &[], &environment)?;
    parts.until_ready(parts.autoscaler).await?;
    parts.publish(parts.autoscaler, true).await?;
    let activator = parts.start_plane(parts.activator, &parts.kubeconfig, &clocks[1].environment()).await?;
    parts.publish(parts.activator, true).await?;
    let space = Space::create_in(parts.client.clone()).await?;
    for workload in [Workload::new("busy").env("HELLO_LATENCY_MS", 100), Workload::new("idle")] {
        space.deploy(&workload).await?;
    }
    let load = |name: &str| Load::new(parts.activator.address, format!("{name}.{}", space.namespace));
    let busy = load("busy").start(2, "/");
    space.until(SOON, "a ready pod", async || Ok(space.ready_pods("busy").await? >= 1)).await?;
    for (n, seconds) in [3600, 0].into_iter().enumerate() {
        clock.set(seconds)?;
        let other = Owned::create(&space, Workload::new(&format!("other-{n}"))).await?;
        other.adopt(&space).await?;
        load("idle").get_ok("/").await?;
        space.until_served(other.name()).await?;
        if matches!(victim, Victim::Autoscaler) {
            // Its windows must follow, although a pass over port numbers has used the clock.
            let line = "the system's wall clock was set: nothing is scaled down";
            space.until(SOON, "the autoscaler to follow", async || Ok(log.with(&[line]).len() > n)).await?;
        }
        other.delete_scaler(&space).await?;
        space.until_gone(other.name()).await?;
        other.is_restored(&space).await?;
        let is_asleep = async || {
            ensure!(space.replicas("busy").await? >= 1, "scaled to zero under load");
            space.is_asleep("idle").await
        };
        space.until(ASLEEP, "the idle workload to be at zero", is_asleep).await?;
    }
    busy.end().await?;
    no_number_is_leaked(&space).await?;
    parts.end(activator, autoscaler).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscalers_wall_clock_may_jump() -> anyhow::Result<()> {
    set_clock_of(Victim::Autoscaler).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activators_wall_clock_may_jump() -> anyhow::Result<()> {
    set_clock_of(Victim::Activator).await
}
