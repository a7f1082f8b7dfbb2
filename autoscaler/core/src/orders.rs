//! What an operator orders beside the load: a pause, and one wake or one sleep.
//!
//! # Pause
//!
//! While it lasts what there is stays: [`paused`] wants the replicas that it finds, writes none, and asks for no probe. Who
//! changes them by hand is followed. The decider goes on measuring, so that the load is known when it ends.
//!
//! # A request
//!
//! It is carried out once, and then ordinary rules hold: who was woken sleeps again after a window without requests, who
//! was put to sleep wakes with the next request.
//!
//! | asked for | now | then |
//! |---|---|---|
//! | either | older than [`AGE_MAX`] when it is first seen | over: [`Kept::Expired`]; it was meant for another day |
//! | either | paused | over: [`Kept::Paused`] |
//! | awake | no pods, or the last ones are leaving | [`Step::Wake`] |
//! | awake | pods are there, or are on their way | over: done |
//! | asleep | no pods | over: done |
//! | asleep | a minimum, or scale to zero is off | over: [`Kept::Min`] |
//! | asleep | somebody is being served | over: [`Kept::Serving`] |
//! | asleep | a metric, or a limit on how fast it shrinks, asks for pods | over: [`Kept::Metrics`] |
//! | asleep | the load cannot be known, or not yet | [`Step::Wait`]; older than [`AGE_MAX`], over: [`Kept::Expired`] |
//! | asleep | else | [`Step::Sleep`], until no pod is left |
//!
//! Falling asleep leaves out two times of the ordinary way ([`crate::scale_to_zero`]): the stable window, whose past load is
//! forgotten, and the retention of the last pod. The proof that activators are in the path is never left out. A request that
//! comes meanwhile is load like any other, and the sleep is over. A workload that waits for its first ready pod, and nobody
//! with it, falls asleep like one that is awake.

use std::time::Duration;

use crate::active::Active;
use crate::scale_to_zero::{Input as ToZero, Outcome, ProbeNeed, Reason};

/// Oldest request that is carried out when it is first seen, or that goes on waiting. Clocks of operators may be off by some
/// minutes, and objects are applied again after months.
pub const AGE_MAX: Duration = Duration::from_secs(600);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A pod.
    Awake,
    /// None.
    Asleep,
}

/// What the rule depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// What is asked for.
    pub wanted: Wanted,
    /// How long ago; zero if that is still to come.
    pub age: Duration,
    /// Whether it was seen in time before. It may be carried out since, which takes as long as it takes.
    pub is_begun: bool,
    /// Whether the workload is paused.
    pub paused: bool,
    /// Replicas that the target has now.
    pub replicas: i32,
    /// Whether it is awake.
    pub active: Active,
    /// Fewest pods, or 1 where scale to zero is off.
    pub min: i32,
    /// Pods that the load asks for; none: unknown.
    pub load: Option<i32>,
    /// The same, metrics included.
    pub desired: Option<i32>,
    /// Whether anybody is held or served, or was within the last seconds; none: unknown.
    pub serving: Option<bool>,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Want a pod, whatever the load.
    Wake,
    /// Let the last pod go without waiting for a window. `forget`: the load of the past asks for pods.
    Sleep {
        /// Whether the load so far is to be forgotten first.
        forget: bool,
    },
    /// Nothing yet.
    Wait,
    /// It is over: done, or why not.
    Over(Result<(), Kept>),
}

impl Step {
    /// Why the way to zero came out as it did, where this step was taken.
    #[must_use]
    pub fn reason(self, reason: Reason) -> Reason {
        match (self, reason) {
            (Self::Wake, Reason::Desired | Reason::Bounds) => Reason::WakeRequested,
            (Self::Sleep { .. }, Reason::Idle | Reason::Zero) => Reason::SleepRequested,
            (_, reason) => reason,
        }
    }
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is too old.
    Expired,
    /// The workload is paused.
    Paused,
    /// So many pods have to stay.
    Min(i32),
    /// Somebody is being served.
    Serving,
    /// So many pods are asked for by something else than the load.
    Metrics(i32),
}

impl Kept {
    /// One word for programs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Expired => "Expired",
            Self::Paused => "Paused",
            Self::Min(_) => "Min",
            Self::Serving => "Serving",
            Self::Metrics(_) => "Metrics",
        }
    }

    /// Words for an operator.
    pub fn explain(self) -> String {
        match self {
            Self::Expired => format!("the request was older than {} minutes", AGE_MAX.as_secs() / 60),
            Self::Paused => "the workload is paused: spec.paused".to_owned(),
            Self::Min(1) => "1 pod has to stay: scale.min, a schedule, or config-autoscaler".to_owned(),
            Self::Min(pods) => format!("{pods} pods have to stay: scale.min, a schedule, or config-autoscaler"),
            Self::Serving => "requests are held or served, or were within the last seconds".to_owned(),
            Self::Metrics(pods) => format!("metrics, or behavior, ask for {pods} pods"),
        }
    }
}

/// What to do about a request. See the [module](self).
pub fn step(input: &Input) -> Step {
    let kept = |kept| Step::Over(Err(kept));
    let is_old = input.age > AGE_MAX;
    match input.wanted {
        _ if is_old && !input.is_begun => kept(Kept::Expired),
        _ if input.paused => kept(Kept::Paused),
        Wanted::Awake if input.replicas > 0 && !input.active.is_inactive() => Step::Over(Ok(())),
        Wanted::Awake => Step::Wake,
        Wanted::Asleep if input.replicas == 0 => Step::Over(Ok(())),
        Wanted::Asleep if input.min > 0 => kept(Kept::Min(input.min)),
        Wanted::Asleep => match (input.serving, input.load, input.desired) {
            (Some(true), ..) => kept(Kept::Serving),
            (Some(false), Some(0), Some(asked)) if asked > 0 => kept(Kept::Metrics(asked)),
            (Some(false), Some(load), _) => Step::Sleep { forget: load > 0 },
            (Some(false), None, _) | (None, ..) if is_old => kept(Kept::Expired),
            (Some(false), None, _) | (None, ..) => Step::Wait,
        },
    }
}

/// What a workload's way to zero is decided from, where a step is taken. `activation`: how many pods it wakes with.
#[must_use]
pub fn applied(input: ToZero, step: Step, activation: i32) -> ToZero {
    match step {
        Step::Wake => ToZero { desired: Some(input.desired.unwrap_or(0).max(activation).max(1)), ..input },
        Step::Sleep { .. } => {
            // What is activating is not given up on: it is inactive from now on.
            let active = if input.active.is_activating() { Active::False(Duration::ZERO) } else { input.active };
            let (stable_window, pod_retention) = (Duration::ZERO, Duration::ZERO);
            ToZero { desired: Some(0), active, stable_window, pod_retention, ..input }
        }
        Step::Wait | Step::Over(_) => input,
    }
}

/// What a paused workload comes to, with so many replicas.
pub fn paused(replicas: i32) -> Outcome {
    Outcome { want: Some(replicas), patch: None, requeue: None, probe: ProbeNeed::None, reason: Reason::Paused }
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

    /// The same, seen in time, and old by now.
    fn begun(input: Input) -> Input {
        Input { age: AGE_MAX + NEW, is_begun: true, ..input }
    }

    #[test]
    fn the_table_of_the_module_holds() {
        let rows = [
            ("asleep", wake(0, ASLEEP), Step::Wake),
            ("falling asleep", wake(1, ASLEEP), Step::Wake),
            ("never looked at", wake(0, Active::Absent), Step::Wake),
            ("on its way", wake(1, Active::Unknown(NEW)), Step::Over(Ok(()))),
            ("awake", wake(1, AWAKE), Step::Over(Ok(()))),
            ("paused", Input { paused: true, ..wake(0, ASLEEP) }, Step::Over(Err(Kept::Paused))),
            ("at the limit of its age", Input { age: AGE_MAX, ..wake(0, ASLEEP) }, Step::Wake),
            ("beyond", Input { age: AGE_MAX + NEW, ..wake(0, ASLEEP) }, Step::Over(Err(Kept::Expired))),
            ("calm, and was busy", sleep(Some(1), Some(false)), Step::Sleep { forget: true }),
            ("calm, and forgotten", sleep(Some(0), Some(false)), Step::Sleep { forget: false }),
            (
                "calm, falling asleep",
                Input { active: ASLEEP, ..sleep(Some(0), Some(false)) },
                Step::Sleep { forget: false },
            ),
            ("serving", sleep(Some(1), Some(true)), Step::Over(Err(Kept::Serving))),
            (
                "waking for somebody",
                Input { active: Active::Unknown(NEW), ..sleep(Some(1), Some(true)) },
                Step::Over(Err(Kept::Serving)),
            ),
            (
                "waking for nobody",
                Input { active: Active::Unknown(NEW), ..sleep(Some(0), Some(false)) },
                Step::Sleep { forget: false },
            ),
            ("nobody knows", sleep(Some(1), None), Step::Wait),
            ("not decided yet", sleep(None, Some(false)), Step::Wait),
            ("no pods", Input { replicas: 0, ..sleep(None, None) }, Step::Over(Ok(()))),
            ("a minimum", Input { min: 3, ..sleep(Some(0), Some(false)) }, Step::Over(Err(Kept::Min(3)))),
            ("a metric", Input { desired: Some(2), ..sleep(Some(0), Some(false)) }, Step::Over(Err(Kept::Metrics(2)))),
            ("paused and serving", Input { paused: true, ..sleep(Some(1), Some(true)) }, Step::Over(Err(Kept::Paused))),
            (
                "old and serving",
                Input { age: AGE_MAX + NEW, ..sleep(Some(1), Some(true)) },
                Step::Over(Err(Kept::Expired)),
            ),
            ("begun long ago", begun(wake(0, ASLEEP)), Step::Wake),
            ("falling asleep since long ago", begun(sleep(Some(0), Some(false))), Step::Sleep { forget: false }),
            ("nobody has known for long", begun(sleep(Some(1), None)), Step::Over(Err(Kept::Expired))),
            ("nothing decided for long", begun(sleep(None, Some(false))), Step::Over(Err(Kept::Expired))),
            ("waits since then", Input { age: AGE_MAX, ..begun(sleep(None, None)) }, Step::Wait),
        ];
        for (name, input, expected) in rows {
            assert_eq!(step(&input), expected, "{name}");
        }
    }

    /// Goal: what is asked for is what the way to zero comes to, the proof of the path included.
    #[test]
    fn a_step_changes_what_the_way_to_zero_comes_to() {
        use crate::path_mode::PathMode;
        use crate::scale_to_zero::{ProbeResult, decide};
        let rest = |current, active, desired| ToZero {
            desired,
            current_replicas: current,
            bounds: crate::bounds::Bounds { min: 0, max: Some(5) },
            scale_to_zero: true,
            active,
            stable_window: Duration::from_secs(60),
            activation_timeout: Duration::from_secs(630),
            grace_period: Duration::from_secs(30),
            pod_retention: Duration::from_secs(600),
            path: PathMode::Proxy,
            proxy_for: Duration::from_secs(3600),
            probe_needed: true,
            probe: ProbeResult::NotAsked,
            warm_in: None,
            unheard: false,
        };
        let to = |input, step, activation| {
            let outcome = decide(&applied(input, step, activation));
            (outcome.want, outcome.patch, outcome.probe)
        };
        let sleep = Step::Sleep { forget: true };
        assert_eq!(to(rest(0, ASLEEP, Some(0)), Step::Wake, 0), (Some(1), Some(1), ProbeNeed::None));
        assert_eq!(to(rest(0, ASLEEP, None), Step::Wake, 3), (Some(3), Some(3), ProbeNeed::None));
        assert_eq!(
            to(rest(0, ASLEEP, Some(0)), Step::Wake, 9),
            (Some(5), Some(5), ProbeNeed::None),
            "the maximum holds"
        );
        assert_eq!(to(rest(1, AWAKE, Some(0)), Step::Wait, 0).0, Some(1), "the window");
        assert_eq!(to(rest(2, AWAKE, Some(2)), sleep, 0), (Some(0), None, ProbeNeed::None), "inactive first");
        assert_eq!(to(rest(2, ASLEEP, Some(0)), sleep, 0), (Some(0), None, ProbeNeed::Ask), "then the proof");
        for waking in [Active::Unknown(NEW), Active::Absent] {
            assert_eq!(to(rest(1, waking, Some(0)), sleep, 0), (Some(0), None, ProbeNeed::Ask), "no pod was ready");
        }
        let proven = ToZero { probe: ProbeResult::InPath, ..rest(2, ASLEEP, Some(0)) };
        assert_eq!(to(proven, sleep, 0), (Some(0), Some(0), ProbeNeed::None), "then none, and no retention");
        assert_eq!(to(proven, Step::Wait, 0).1, None, "which holds otherwise");
    }

    #[test]
    fn a_pause_wants_what_there_is_and_writes_nothing() {
        for replicas in [0, 1, 7] {
            let outcome = paused(replicas);
            assert_eq!((outcome.want, outcome.patch, outcome.probe), (Some(replicas), None, ProbeNeed::None));
        }
    }
}
