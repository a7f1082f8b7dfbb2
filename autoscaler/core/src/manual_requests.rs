//! Manual requests of an operator: a pause, and one request to wake or to sleep.
//!
//! # Pause
//!
//! A pause keeps the current state: [`paused`] returns the current replicas, writes none, and requests no probe.
//! Manual changes of the replicas are accepted. The decider keeps measuring, so that the load is known when the pause
//! ends.
//!
//! # A request
//!
//! A request is carried out once, and then the ordinary rules apply. A workload that was woken sleeps again after a
//! window without requests. A workload that was put to sleep wakes with the next request.
//!
//! | request | state | result |
//! |---|---|---|
//! | any | older than [`AGE_MAX`] when first observed | over: [`RequestRejection::Expired`]; it is out of date |
//! | any | paused | over: [`RequestRejection::Paused`] |
//! | awake | no pods, or the last ones are leaving | [`Step::Wake`] |
//! | awake | there are pods, running or starting | over: done |
//! | asleep | no pods | over: done |
//! | asleep | there is a minimum, or scale to zero is off | over: [`RequestRejection::Min`] |
//! | asleep | requests are being served | over: [`RequestRejection::Serving`] |
//! | asleep | a metric, or a limit on scaling down, requires pods | over: [`RequestRejection::Metrics`] |
//! | asleep | the load is not known (yet) | [`Step::Wait`]; older than [`AGE_MAX`], over: [`RequestRejection::Expired`] |
//! | asleep | otherwise | [`Step::Sleep`], until no pod is left |
//!
//! A sleep skips two delays of the ordinary way to zero ([`crate::scale_to_zero`]): the stable window, whose past load
//! is forgotten, and the retention of the last pod. The proof that activators are in the path is never skipped. A
//! request that arrives meanwhile counts as ordinary load and ends the sleep. A workload that waits for its first ready
//! pod, without waiting requests, falls asleep like an active one.

use std::time::Duration;

use crate::active::Active;
use crate::scale_to_zero::{Input as ToZero, ProbeNeed, Reason, ScaleOutcome};

/// Maximum age of a request that is carried out when first observed, or that continues to wait. Clocks of operators may
/// be off by some minutes, and objects are applied again after months.
pub const AGE_MAX: Duration = Duration::from_secs(600);

/// Requested state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// At least one pod.
    Awake,
    /// No pod.
    Asleep,
}

/// Input of [`step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Requested state.
    pub wanted: Wanted,
    /// Age of the request; zero if its time lies in the future.
    pub age: Duration,
    /// True if the request was first observed in time. It may then be carried out later, however long that takes.
    pub is_begun: bool,
    /// True if the workload is paused.
    pub paused: bool,
    /// Current replicas of the target.
    pub replicas: i32,
    /// Active condition of the workload.
    pub active: Active,
    /// Minimum number of pods; at least 1 if scale to zero is off.
    pub min: i32,
    /// Number of pods that the load requires; `None` if unknown.
    pub load: Option<i32>,
    /// Number of pods that load and metrics require; `None` if unknown.
    pub desired: Option<i32>,
    /// True if requests are held or served, or were within the last seconds; `None` if unknown.
    pub serving: Option<bool>,
}

/// Next step for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Request a pod, whatever the load.
    Wake,
    /// Remove the last pod without waiting for a window.
    Sleep {
        /// True if the past load requires pods and must be forgotten first.
        forget: bool,
    },
    /// Do nothing yet.
    Wait,
    /// The request is over: done, or not carried out for this reason.
    Over(Result<(), RequestRejection>),
}

impl Step {
    /// Returns the reason to report for an outcome of the way to zero in which this step was taken.
    #[must_use]
    pub fn reason(self, reason: Reason) -> Reason {
        match (self, reason) {
            (Self::Wake, Reason::Desired | Reason::Bounds) => Reason::WakeRequested,
            (Self::Sleep { .. }, Reason::Idle | Reason::Zero) => Reason::SleepRequested,
            (_, reason) => reason,
        }
    }
}

/// Reason why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRejection {
    /// The request is too old.
    Expired,
    /// The workload is paused.
    Paused,
    /// This many pods have to stay.
    Min(i32),
    /// Requests are being served.
    Serving,
    /// Metrics or a behavior require this many pods.
    Metrics(i32),
}

impl RequestRejection {
    /// Returns one word for programs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Expired => "Expired",
            Self::Paused => "Paused",
            Self::Min(_) => "Min",
            Self::Serving => "Serving",
            Self::Metrics(_) => "Metrics",
        }
    }

    /// Returns a text for an operator.
    pub fn explain(self) -> String {
        match self {
            Self::Expired => format!("the request was older than {} minutes", AGE_MAX.as_secs() / 60),
            Self::Paused => "the workload is paused (spec.paused)".to_owned(),
            Self::Min(1) => "1 pod must stay, because of scale.min, a schedule or config-autoscaler".to_owned(),
            Self::Min(pods) => format!("{pods} pods must stay, because of scale.min, a schedule or config-autoscaler"),
            Self::Serving => "the workload has requests, or had some within the last seconds".to_owned(),
            Self::Metrics(pods) => format!("spec.metrics or spec.behavior require {pods} pods"),
        }
    }
}

/// Returns the next step for a request. See the [module](self).
pub fn step(input: &Input) -> Step {
    let reject = |rejection| Step::Over(Err(rejection));
    let is_old = input.age > AGE_MAX;
    match input.wanted {
        _ if is_old && !input.is_begun => reject(RequestRejection::Expired),
        _ if input.paused => reject(RequestRejection::Paused),
        Wanted::Awake if input.replicas > 0 && !input.active.is_inactive() => Step::Over(Ok(())),
        Wanted::Awake => Step::Wake,
        Wanted::Asleep if input.replicas == 0 => Step::Over(Ok(())),
        Wanted::Asleep if input.min > 0 => reject(RequestRejection::Min(input.min)),
        Wanted::Asleep => match (input.serving, input.load, input.desired) {
            (Some(true), ..) => reject(RequestRejection::Serving),
            (Some(false), Some(0), Some(pods)) if pods > 0 => reject(RequestRejection::Metrics(pods)),
            (Some(false), Some(load), _) => Step::Sleep { forget: load > 0 },
            (Some(false), None, _) | (None, ..) if is_old => reject(RequestRejection::Expired),
            (Some(false), None, _) | (None, ..) => Step::Wait,
        },
    }
}

/// Returns the input of the way to zero with a step applied. `activation` is the number of pods to wake with.
#[must_use]
pub fn applied(input: ToZero, step: Step, activation: i32) -> ToZero {
    match step {
        Step::Wake => ToZero { desired: Some(input.desired.unwrap_or(0).max(activation).max(1)), ..input },
        Step::Sleep { .. } => {
            // Treat an activating workload as inactive from now on, so that the activation timeout does not apply.
            let active = if input.active.is_activating() { Active::False(Duration::ZERO) } else { input.active };
            let (stable_window, pod_retention) = (Duration::ZERO, Duration::ZERO);
            ToZero { desired: Some(0), active, stable_window, pod_retention, ..input }
        }
        Step::Wait | Step::Over(_) => input,
    }
}

/// Returns the outcome for a paused workload with this many replicas.
pub fn paused(replicas: i32) -> ScaleOutcome {
    let wanted_scale = Some(replicas);
    ScaleOutcome { wanted_scale, patch: None, requeue: None, probe: ProbeNeed::None, reason: Reason::Paused }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Duration = Duration::from_secs(1);
    const AWAKE: Active = Active::True(NEW);
    const ASLEEP: Active = Active::False(NEW);

    fn wake(replicas: i32, active: Active) -> Input {
        Input {
            wanted: Wanted::Awake,
            age: NEW,
            is_begun: false,
            paused: false,
            replicas,
            active,
            min: 0,
            load: Some(0),
            desired: Some(0),
            serving: Some(false),
        }
    }

    fn sleep(load: Option<i32>, serving: Option<bool>) -> Input {
        Input { wanted: Wanted::Asleep, load, desired: load, serving, ..wake(2, AWAKE) }
    }

    /// Returns the request as first observed in time, but old by now.
    fn begun(input: Input) -> Input {
        Input { age: AGE_MAX + NEW, is_begun: true, ..input }
    }

    #[test]
    fn the_table_of_the_module_holds() {
        use RequestRejection::{Expired, Metrics, Min, Paused, Serving};
        let (done, rejected) = (Step::Over(Ok(())), |rejection| Step::Over(Err(rejection)));
        let sleeps = |forget| Step::Sleep { forget };
        let old = |input| Input { age: AGE_MAX + NEW, ..input };
        let paused = |input| Input { paused: true, ..input };
        let activating = |input| Input { active: Active::Unknown(NEW), ..input };
        let (idle, serving) = (sleep(Some(0), Some(false)), sleep(Some(1), Some(true)));
        let rows = [
            ("asleep", wake(0, ASLEEP), Step::Wake),
            ("falling asleep", wake(1, ASLEEP), Step::Wake),
            ("no condition yet", wake(0, Active::Absent), Step::Wake),
            ("activating", wake(1, Active::Unknown(NEW)), done),
            ("awake", wake(1, AWAKE), done),
            ("paused", paused(wake(0, ASLEEP)), rejected(Paused)),
            ("at the limit of its age", Input { age: AGE_MAX, ..wake(0, ASLEEP) }, Step::Wake),
            ("beyond the limit of its age", old(wake(0, ASLEEP)), rejected(Expired)),
            ("idle after load", sleep(Some(1), Some(false)), sleeps(true)),
            ("idle, and the load is forgotten", idle, sleeps(false)),
            ("idle, falling asleep", Input { active: ASLEEP, ..idle }, sleeps(false)),
            ("serving", serving, rejected(Serving)),
            ("activating with a waiting request", activating(serving), rejected(Serving)),
            ("activating without requests", activating(idle), sleeps(false)),
            ("unknown whether it serves", sleep(Some(1), None), Step::Wait),
            ("no decision yet", sleep(None, Some(false)), Step::Wait),
            ("no pods", Input { replicas: 0, ..sleep(None, None) }, done),
            ("a minimum", Input { min: 3, ..idle }, rejected(Min(3))),
            ("a metric", Input { desired: Some(2), ..idle }, rejected(Metrics(2))),
            ("paused and serving", paused(serving), rejected(Paused)),
            ("old and serving", old(serving), rejected(Expired)),
            ("begun long ago", begun(wake(0, ASLEEP)), Step::Wake),
            ("falling asleep since long ago", begun(idle), sleeps(false)),
            ("unknown for long whether it serves", begun(sleep(Some(1), None)), rejected(Expired)),
            ("no decision for long", begun(sleep(None, Some(false))), rejected(Expired)),
            ("begun, at the limit of its age", Input { age: AGE_MAX, ..begun(sleep(None, None)) }, Step::Wait),
        ];
        for (name, input, expected) in rows {
            assert_eq!(step(&input), expected, "{name}");
        }
    }

    /// Goal: a step changes the outcome of the way to zero as requested, and the proof of the path is still required.
    #[test]
    fn a_step_changes_the_outcome_of_the_way_to_zero() {
        use crate::path_mode::PathMode;
        use crate::scale_to_zero::{ProbeResult, decide};
        let rest = |current, active, desired| ToZero {
            desired,
            current_replicas: current,
            bounds: crate::bounds::Bounds { min: 0, max: Some(5) },
            pod_retention: Duration::from_secs(600),
            path: PathMode::Proxy,
            proxy_for: Duration::from_secs(3600),
            probe: ProbeResult::NotProbed,
            ..crate::scale_to_zero::tests::input(active)
        };
        let to = |input, step, activation| {
            let outcome = decide(&applied(input, step, activation));
            (outcome.wanted_scale, outcome.patch, outcome.probe)
        };
        let (none, probe) = (ProbeNeed::None, ProbeNeed::Probe);
        let sleep = Step::Sleep { forget: true };
        assert_eq!(to(rest(0, ASLEEP, Some(0)), Step::Wake, 0), (Some(1), Some(1), none));
        assert_eq!(to(rest(0, ASLEEP, None), Step::Wake, 3), (Some(3), Some(3), none));
        assert_eq!(to(rest(0, ASLEEP, Some(0)), Step::Wake, 9), (Some(5), Some(5), none), "the maximum holds");
        assert_eq!(to(rest(1, AWAKE, Some(0)), Step::Wait, 0).0, Some(1), "the stable window");
        assert_eq!(to(rest(2, AWAKE, Some(2)), sleep, 0), (Some(0), None, none), "inactive first");
        assert_eq!(to(rest(2, ASLEEP, Some(0)), sleep, 0), (Some(0), None, probe), "then the proof");
        for waking in [Active::Unknown(NEW), Active::Absent] {
            assert_eq!(to(rest(1, waking, Some(0)), sleep, 0), (Some(0), None, probe), "no pod was ready");
        }
        let proven = ToZero { probe: ProbeResult::InPath, ..rest(2, ASLEEP, Some(0)) };
        assert_eq!(to(proven, sleep, 0), (Some(0), Some(0), none), "then no pod, and no retention");
        assert_eq!(to(proven, Step::Wait, 0).1, None, "retention applies otherwise");
    }

    #[test]
    fn a_pause_keeps_the_replicas_and_writes_nothing() {
        for replicas in [0, 1, 7] {
            let outcome = paused(replicas);
            assert_eq!((outcome.wanted_scale, outcome.patch, outcome.probe), (Some(replicas), None, ProbeNeed::None));
        }
    }
}
