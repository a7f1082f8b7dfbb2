//! Runs cases in a separate thread, so that a case that panics or never ends does not stop a run.
//!
//! A thread that does not respond in time is abandoned with everything it holds, and the next case gets a new thread,
//! because our cores cannot be interrupted. Shared state is opened in the thread that runs the cases, so a server that
//! hung is replaced as well. A server that does not start is not started again.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use common::text::excerpt;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::PRINTED_MAX;
use crate::kinds::{Check, VectorKind};
use crate::suite::{Suite, Target};

/// Maximum time for shared state to start, and to end.
const OPENING: Duration = Duration::from_secs(60);
const CLOSING: Duration = Duration::from_secs(20);

/// Result of running a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CaseOutcome {
    /// The case ended with a result.
    Checked(Result<(), Mismatch>),
    /// The case panicked with this message.
    Panicked(String),
    /// The case did not end, or its shared state did not start, within this time.
    TimedOut(Duration),
}

/// Message from the thread.
enum Progress {
    Opened,
    Ended(CaseOutcome),
}

/// Current thread, with the state shared between cases.
pub(crate) struct Worker {
    target: Target,
    thread: Option<Thread>,
    /// Kinds whose suite did not start in time.
    unopened: HashSet<&'static str>,
}

struct Thread {
    cases: Sender<(&'static VectorKind, Value)>,
    progress: Receiver<Progress>,
}

impl Worker {
    /// Creates a worker that sends API scenarios to `target`.
    pub(crate) fn new(target: Target) -> Self {
        Self { target, thread: None, unopened: HashSet::new() }
    }

    /// Runs a case within a time limit.
    pub(crate) fn check(&mut self, kind: &'static VectorKind, case: &Value, within: Duration) -> CaseOutcome {
        if self.unopened.contains(kind.name) {
            return CaseOutcome::TimedOut(OPENING);
        }
        let thread = self.thread.get_or_insert_with(|| Thread::start(self.target.clone()));
        // If the thread has ended, the receive below reports it.
        let _ = thread.cases.send((kind, case.clone()));
        let outcome = match thread.progress.recv_timeout(OPENING) {
            Ok(Progress::Opened) => match thread.progress.recv_timeout(within) {
                Ok(Progress::Ended(outcome)) => return outcome,
                Ok(Progress::Opened) | Err(RecvTimeoutError::Timeout) => CaseOutcome::TimedOut(within),
                Err(RecvTimeoutError::Disconnected) => thread_ended(),
            },
            Ok(Progress::Ended(outcome)) => return outcome,
            Err(RecvTimeoutError::Timeout) => {
                self.unopened.insert(kind.name);
                CaseOutcome::TimedOut(OPENING)
            }
            Err(RecvTimeoutError::Disconnected) => thread_ended(),
        };
        self.thread = None;
        outcome
    }

    /// Closes the shared state, if it ends in time.
    pub(crate) fn close(self) {
        if let Some(Thread { cases, progress }) = self.thread {
            drop(cases);
            while progress.recv_timeout(CLOSING).is_ok() {}
        }
    }
}

fn thread_ended() -> CaseOutcome {
    CaseOutcome::Panicked("its thread has ended".into())
}

impl Thread {
    fn start(target: Target) -> Self {
        let (cases, incoming) = mpsc::channel::<(&'static VectorKind, Value)>();
        let (sender, progress) = mpsc::channel();
        thread::spawn(move || {
            let mut suites = HashMap::new();
            while let Ok((kind, case)) = incoming.recv() {
                let run = AssertUnwindSafe(|| check(kind, &case, &target, &mut suites, &sender));
                let outcome = catch_unwind(run).map_or_else(
                    |panic| {
                        // State left behind by a panic is neither used nor dropped.
                        if let Some(suite) = suites.remove(kind.name) {
                            std::mem::forget(suite);
                        }
                        CaseOutcome::Panicked(panic_message(&*panic))
                    },
                    CaseOutcome::Checked,
                );
                if sender.send(Progress::Ended(outcome)).is_err() {
                    return;
                }
            }
        });
        Self { cases, progress }
    }
}

fn check(
    kind: &'static VectorKind,
    case: &Value,
    target: &Target,
    suites: &mut HashMap<&'static str, Box<dyn Suite>>,
    sender: &Sender<Progress>,
) -> Result<(), Mismatch> {
    let opened = || {
        let _ = sender.send(Progress::Opened); // If the worker no longer waits, the result is dropped, too.
    };
    match kind.check {
        Check::Pure(check) => {
            opened();
            check(case)
        }
        Check::Suite(open) => {
            if !suites.contains_key(kind.name) {
                let suite = open(target).map_err(|e| Mismatch::Broken(format!("{e:#}")))?;
                suites.insert(kind.name, suite);
            }
            opened();
            suites
                .get_mut(kind.name)
                .map_or_else(|| Err(Mismatch::Broken("no suite".into())), |suite| suite.check(case))
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}

/// Returns the expected values of a case that has no result.
pub(crate) fn expected_values(kind: &VectorKind, case: &Value) -> String {
    let mut found = Vec::new();
    collect_expectations(kind.expected, case, &mut found);
    excerpt(&found.join(", "), PRINTED_MAX)
}

fn collect_expectations(names: &[&str], value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match names.iter().any(|expected| name.starts_with(expected)) {
                    true => found.push(value.to_string()),
                    false => collect_expectations(names, value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect_expectations(names, value, found)),
        _ => {}
    }
}
