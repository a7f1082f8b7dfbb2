//! Life cycle of one container: configured, started, probed, restarted, stopped.
//!
//! ```text
//! Creating ─► Running ─► (ended) ─► back-off ─► Running …          restart policy allows it
//!     │           │          └────► Ended                          it does not, or the pod stops
//!     └───────────┴── cannot be configured or started: waits, and tries again
//! ```
//!
//! The state is published as the container's part of the pod's status. A waiting container has one of these
//! reasons: `CreateContainerConfigError` (the manifest), `CreateContainerError` (program not found),
//! `RunContainerError` (it did not start), `CrashLoopBackOff`, and `PortCollision` (see [`super::listeners`]). The last
//! two appear only during a back-off, since clients take them for a failing pod. A container that is restarted at once
//! is `ContainerCreating`, and its exit is in its last state.

use super::Node;
use super::backoff::Restarts;
use super::listeners::{self, RunningContainer};
use super::prepare::{Prepared, StartError, prepare};
use super::probe::{self, ProbeOutcome, Purpose};
use super::process::{self, Process, exit_code};
use super::status::{PodPlacement, creating, terminated, waiting};
use crate::logs::PodLogs;
use common_controller::{Severity, key_of};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Pause before a failed start is retried. A missing object or program may exist by then.
const START_RETRY: Duration = Duration::from_secs(1);
/// Delay after which the listening addresses of a new process are checked. Most programs listen by then.
const LISTENER_CHECK_DELAY: Duration = Duration::from_secs(1);
/// Capacity of the channel for the outcomes of at most three probes.
const OUTCOMES_MAX: usize = 4;
/// Maximum grace period, a hundred years. API servers accept any number of seconds, but an `Instant` cannot represent
/// every one.
const GRACE_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Data of a container that is the same for all its runs.
pub(crate) struct SupervisedContainer {
    pub(crate) node: Arc<Node>,
    pub(crate) pod: Arc<Pod>,
    pub(crate) spec: Container,
    /// Index among the pod's containers.
    pub(crate) index: usize,
    pub(crate) placement: PodPlacement,
    pub(crate) logs: PodLogs,
    /// Statuses of all containers of the pod.
    pub(crate) statuses: Arc<watch::Sender<Vec<ContainerStatus>>>,
}

pub(crate) fn grace_of(pod: &Pod) -> Duration {
    grace(pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds).unwrap_or(30))
}

/// Converts seconds to a grace period, limited to [`GRACE_MAX`].
pub(crate) fn grace(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(GRACE_MAX)
}

impl SupervisedContainer {
    /// Runs the container until its pod stops or its restart policy ends it. `stop` carries the grace period once the
    /// pod must stop. A later, shorter grace period replaces it.
    pub(crate) async fn supervise(self, mut restarts: i32, mut stop: watch::Receiver<Option<Duration>>) {
        let mut delays = Restarts::new(self.node.options.restart_backoff);
        loop {
            let started = tokio::select! {
                biased;
                () = stop_requested(&mut stop) => return,
                started = self.start(restarts) => started,
            };
            let (mut process, prepared) = match started {
                Ok(started) => started,
                Err(error) => {
                    self.warn("Failed", &error.message);
                    self.update(|status| status.state = Some(waiting(error.reason, Some(error.message))));
                    if pause(START_RETRY, &mut stop).await {
                        return;
                    }
                    continue;
                }
            };
            let began = Instant::now();
            let ended = self.wait_for_end(&mut process, &prepared, &mut stop).await;
            self.logs.end(&self.spec.name, restarts);
            if stop.borrow().is_some() || !self.should_restart(&ended) {
                self.update(|status| {
                    (status.ready, status.started) = (false, Some(false));
                    status.state = Some(terminated(ended));
                });
                return;
            }
            restarts += 1;
            let delay = delays.after(began.elapsed());
            let mut next = creating(&self.spec, restarts);
            next.container_id.clone_from(&ended.container_id);
            if let Some((reason, message)) = backing_off(&ended, delay, &self.spec.name, &self.pod.name_any()) {
                if reason == CRASH_LOOP {
                    self.warn("BackOff", &message);
                }
                next.state = Some(waiting(reason, Some(message)));
            }
            next.last_state = Some(terminated(ended));
            self.update(|status| *status = next);
            if pause(delay, &mut stop).await {
                return;
            }
        }
    }

    /// Prepares and starts one run.
    async fn start(&self, run: i32) -> Result<(Process, Prepared), StartError> {
        let prepared = prepare(&self.node, &self.pod, &self.spec, &self.placement).await?;
        let failed = |error: std::io::Error| StartError {
            reason: "RunContainerError",
            message: format!("program {} could not be started: {error}", prepared.launch.program.display()),
        };
        let file = self.logs.create(&self.spec.name, run).map_err(failed)?;
        match process::spawn(&prepared.launch, Some(&file)).await {
            Ok(process) => Ok((process, prepared)),
            Err(error) => {
                self.logs.end(&self.spec.name, run);
                Err(failed(error))
            }
        }
    }

    /// Waits until a running process has ended, and runs its probes meanwhile.
    async fn wait_for_end(
        &self,
        process: &mut Process,
        prepared: &Prepared,
        stop: &mut watch::Receiver<Option<Duration>>,
    ) -> ContainerStateTerminated {
        let (started_at, pid) = (Some(Time(Timestamp::now())), process.pid());
        let container_id = Some(format!("process://{pid}"));
        let me = self.running_container(pid, prepared);
        self.node.add_running(&me);
        let has = |purpose: Purpose| prepared.probes.iter().any(|(spec, _)| spec.purpose == purpose);
        let started = !has(Purpose::Startup);
        let ready = started && !has(Purpose::Readiness);
        self.update(|status| {
            let running = Some(ContainerStateRunning { started_at: started_at.clone() });
            status.state = Some(ContainerState { running, ..ContainerState::default() });
            status.container_id.clone_from(&container_id);
            (status.started, status.ready) = (Some(started), ready);
        });
        let (sender, mut outcomes) = mpsc::channel(OUTCOMES_MAX);
        let mut probes = JoinSet::new(); // Dropping it aborts the remaining probes.
        let mut launch_probes = |startup: bool| {
            let now = Instant::now();
            for (spec, handler) in prepared.probes.iter().filter(|(s, _)| (s.purpose == Purpose::Startup) == startup) {
                probes.spawn(probe::run(spec.clone(), handler.clone(), now, sender.clone()));
            }
        };
        launch_probes(!started);
        let listener_check = tokio::time::sleep(LISTENER_CHECK_DELAY);
        tokio::pin!(listener_check);
        let mut listeners_checked = false;
        let mut killed: Option<(&'static str, String)> = None;
        let exit = loop {
            tokio::select! {
                biased;
                exit = process.wait() => break exit,
                () = stop_requested(stop) => break stop_within(process, stop, Duration::ZERO).await,
                Some(outcome) = outcomes.recv() => match outcome {
                    ProbeOutcome::Started => {
                        self.update(|status| (status.started, status.ready) = (Some(true), !has(Purpose::Readiness)));
                        launch_probes(false);
                    }
                    ProbeOutcome::Ready(ready, message) => {
                        if !ready {
                            self.warn("Unhealthy", &message);
                        }
                        self.update(|status| status.ready = ready);
                    }
                    ProbeOutcome::Unhealthy(message) => self.warn("Unhealthy", &message),
                    ProbeOutcome::Dead(message) => {
                        self.warn("Unhealthy", &message);
                        killed = Some(("Error", message));
                        break self.stop_unhealthy(process, stop).await;
                    }
                },
                () = &mut listener_check, if !listeners_checked => {
                    listeners_checked = true;
                    if let Some(message) = self.check_listeners(&me).await {
                        killed = Some((COLLISION, message));
                        break self.stop_unhealthy(process, stop).await;
                    }
                }
            }
        };
        // An error of the wait is a bug; the process counts as lost.
        let exit = exit.unwrap_or(ExitStatus::from_raw(255 << 8));
        if killed.is_none() && stop.borrow().is_none() && !exit.success() {
            killed = self.explanation(&me).await;
        }
        let usual = if exit.success() { "Completed" } else { "Error" };
        let (reason, message) = killed.map_or((usual, None), |(reason, message)| (reason, Some(message)));
        ContainerStateTerminated {
            container_id,
            exit_code: exit_code(exit),
            signal: exit.signal(),
            reason: Some(reason.into()),
            message,
            started_at,
            finished_at: Some(Time(Timestamp::now())),
        }
    }

    /// Returns reason and message of a failure that has a known cause outside of the program.
    async fn explanation(&self, me: &RunningContainer) -> Option<(&'static str, String)> {
        if let Some(message) = self.logs.full_disk() {
            self.warn("DiskPressure", &message);
            return Some(("Error", message));
        }
        Some((COLLISION, self.collision(me).await?))
    }

    /// Stops a process whose probe failed or whose port collides. Uses the pod's grace period, or the remaining one if
    /// the pod is already stopping.
    async fn stop_unhealthy(
        &self,
        process: &mut Process,
        stop: &mut watch::Receiver<Option<Duration>>,
    ) -> std::io::Result<ExitStatus> {
        let container = &self.spec.name;
        let message = format!("Container {container} is stopped, and restarted if the pod's restart policy allows it");
        self.node.events.record("kubelet", &*self.pod, Severity::Normal, "Killing", message);
        stop_within(process, stop, grace_of(&self.pod)).await
    }

    /// Reports a program that listens on every address by an event. Returns the reason to end the program if it shares
    /// a port with another pod.
    async fn check_listeners(&self, me: &RunningContainer) -> Option<String> {
        let (others, listeners) = self.survey(me).await;
        let (message, shared) = listeners::listens_everywhere(me, &others, &listeners)?;
        self.warn(if shared { COLLISION } else { "ListensOnEveryAddress" }, &message);
        shared.then_some(message)
    }

    /// Returns a message if a failure was a port collision, and reports it by an event.
    async fn collision(&self, me: &RunningContainer) -> Option<String> {
        let (others, listeners) = self.survey(me).await;
        let message = listeners::explain_collision(me, &others, &listeners)?;
        self.warn(COLLISION, &message);
        Some(message)
    }

    async fn survey(&self, me: &RunningContainer) -> (Vec<Arc<RunningContainer>>, Vec<listeners::Listener>) {
        let others: Vec<_> = self.node.running().into_iter().filter(|other| other.group != me.group).collect();
        let groups: Vec<_> = others.iter().map(|other| other.group).chain([me.group]).collect();
        let listeners = tokio::task::spawn_blocking(move || listeners::survey(&groups)).await.unwrap_or_default();
        (others, listeners)
    }

    fn running_container(&self, group: i32, prepared: &Prepared) -> Arc<RunningContainer> {
        Arc::new(RunningContainer {
            pod: key_of(&*self.pod).to_string(),
            container: self.spec.name.clone(),
            group,
            program: prepared.launch.program.clone(),
            assigned: prepared.assigned,
            since: Instant::now(),
        })
    }

    fn should_restart(&self, ended: &ContainerStateTerminated) -> bool {
        match self.pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()) {
            Some("Never") => false,
            Some("OnFailure") => ended.exit_code != 0,
            _ => true,
        }
    }

    fn warn(&self, reason: &str, message: &str) {
        self.node.warn(&self.pod, reason, message);
    }

    fn update(&self, change: impl FnOnce(&mut ContainerStatus)) {
        self.statuses.send_modify(|statuses| {
            if let Some(status) = statuses.get_mut(self.index) {
                change(status);
            }
        });
    }
}

/// Reason of a failure caused by an address or port in use.
const COLLISION: &str = "PortCollision";
/// Reason of a back-off after any other failure.
const CRASH_LOOP: &str = "CrashLoopBackOff";

/// Returns reason and message of a container that waits for its restart, or `None` if it restarts at once.
fn backing_off(
    ended: &ContainerStateTerminated,
    delay: Duration,
    container: &str,
    pod: &str,
) -> Option<(&'static str, String)> {
    if delay.is_zero() {
        return None;
    }
    let message = format!("back-off {}s restarting failed container={container} pod={pod}", delay.as_secs());
    Some(match &ended.message {
        Some(why) if ended.reason.as_deref() == Some(COLLISION) => (COLLISION, format!("{why} ({message})")),
        _ => (CRASH_LOOP, message),
    })
}

/// Waits until the pod must stop. Cancel safe.
async fn stop_requested(stop: &mut watch::Receiver<Option<Duration>>) {
    let _ = stop.wait_for(Option::is_some).await; // Without a sender, the pod is gone.
}

/// Waits for the delay. Returns true at once if the pod must stop.
async fn pause(delay: Duration, stop: &mut watch::Receiver<Option<Duration>>) -> bool {
    tokio::time::timeout(delay, stop_requested(stop)).await.is_ok()
}

/// Sends SIGTERM to a process, and SIGKILL after its grace period. This is `grace` until `stop` has a value, which may
/// become shorter meanwhile.
async fn stop_within(
    process: &mut Process,
    stop: &mut watch::Receiver<Option<Duration>>,
    grace: Duration,
) -> std::io::Result<ExitStatus> {
    process.terminate();
    let began = Instant::now();
    loop {
        let grace = stop.borrow_and_update().unwrap_or(grace);
        tokio::select! {
            biased;
            exit = process.wait() => return exit,
            () = tokio::time::sleep_until(began + grace) => {
                process.kill();
                return process.wait().await;
            }
            Ok(()) = stop.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::backoff::DELAYS;
    use super::*;

    fn ended(reason: &str, message: Option<&str>) -> ContainerStateTerminated {
        let (reason, message) = (Some(reason.to_owned()), message.map(str::to_owned));
        ContainerStateTerminated { exit_code: 1, reason, message, ..ContainerStateTerminated::default() }
    }

    /// Goal: a pod that fails once during a wake does not look like a failing pod. Method: consecutive failures, each
    /// with the resulting status of the container.
    #[test]
    fn a_back_off_is_reported_only_if_the_container_waits() {
        let short = Duration::from_secs(1);
        let back_off = |seconds: u32| format!("back-off {seconds}s restarting failed container=c pod=p");
        let crash = ended("Error", None);
        let mut delays = Restarts::new(DELAYS);
        let mut after =
            |ended: &ContainerStateTerminated, ran: Duration| backing_off(ended, delays.after(ran), "c", "p");
        assert_eq!(after(&crash, short), None, "the first restart is immediate");
        assert_eq!(after(&crash, short), Some((CRASH_LOOP, back_off(10))));
        assert_eq!(after(&crash, short), Some((CRASH_LOOP, back_off(20))));
        let collision = ended(COLLISION, Some("8080 is taken"));
        assert_eq!(after(&collision, short), Some((COLLISION, format!("8080 is taken ({})", back_off(40)))));
        assert_eq!(after(&crash, Duration::from_secs(600)), None, "a long run resets the delay");
        let mut first = Restarts::new(DELAYS);
        assert_eq!(backing_off(&collision, first.after(short), "c", "p"), None);
    }
}
