//! Runs cases in a thread of its own, so that neither a case that panics nor one that never ends stops a run.
//!
//! A thread that does not answer in time is left behind, with whatever it holds, and the next case gets a new one: our
//! cores cannot be interrupted. What cases share is opened in the thread that runs them, so a server that hung is
//! replaced as well. One that does not even start is not started again.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::Mismatch;
use crate::kinds::{Check, VectorKind};
use crate::suite::{Suite, Target};

/// How long what cases share may take to start, and to end.
const OPENING: Duration = Duration::from_secs(60);
const CLOSING: Duration = Duration::from_secs(20);

/// How much of what a case wanted is printed, in characters.
const SHOWN: usize = 600;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With an answer.
    Checked(Result<(), Mismatch>),
    /// It panicked; says with which words.
    Panicked(String),
    /// It did not end, or what it needs did not start, within that time.
    Endless(Duration),
}

/// What the thread tells.
enum Told {
    Opened,
    Ended(Outcome),
}

/// One thread at a time, and what it shares between cases.
pub(crate) struct Worker {
    target: Target,
    thread: Option<Thread>,
    /// Kinds whose suite did not start in time.
    unopened: HashSet<&'static str>,
}

struct Thread {
    cases: Sender<(&'static VectorKind, Value)>,
    told: Receiver<Told>,
}

impl Worker {
    /// API scenarios go to `target`.
    pub(crate) fn new(target: Target) -> Self {
        Self { target, thread: None, unopened: HashSet::new() }
    }

    /// Runs a case, which may take so long.
    pub(crate) fn check(&mut self, kind: &'static VectorKind, case: &Value, within: Duration) -> Outcome {
        if self.unopened.contains(kind.name) {
            return Outcome::Endless(OPENING);
        }
        let thread = self.thread.get_or_insert_with(|| Thread::start(self.target.clone()));
        // A thread that has gone says so below.
        let _ = thread.cases.send((kind, case.clone()));
        let outcome = match thread.told.recv_timeout(OPENING) {
            Ok(Told::Opened) => match thread.told.recv_timeout(within) {
                Ok(Told::Ended(outcome)) => return outcome,
                Ok(Told::Opened) | Err(RecvTimeoutError::Timeout) => Outcome::Endless(within),
                Err(RecvTimeoutError::Disconnected) => gone(),
            },
            Ok(Told::Ended(outcome)) => return outcome,
            Err(RecvTimeoutError::Timeout) => {
                self.unopened.insert(kind.name);
                Outcome::Endless(OPENING)
            }
            Err(RecvTimeoutError::Disconnected) => gone(),
        };
        self.thread = None;
        outcome
    }

    /// Ends what cases share, if it ends in time.
    pub(crate) fn close(self) {
        if let Some(Thread { cases, told }) = self.thread {
            drop(cases);
            while told.recv_timeout(CLOSING).is_ok() {}
        }
    }
}

fn gone() -> Outcome {
    Outcome::Panicked("its thread has ended".into())
}

impl Thread {
    fn start(target: Target) -> Self {
        let (cases, todo) = mpsc::channel::<(&'static VectorKind, Value)>();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut suites = HashMap::new();
            while let Ok((kind, case)) = todo.recv() {
                let run = AssertUnwindSafe(|| check(kind, &case, &target, &mut suites, &tell));
                let outcome = catch_unwind(run).map_or_else(
                    |panic| {
                        // What a panic has left is not used again, nor is it asked to tidy up.
                        if let Some(suite) = suites.remove(kind.name) {
                            std::mem::forget(suite);
                        }
                        Outcome::Panicked(words(&*panic))
                    },
                    Outcome::Checked,
                );
                if tell.send(Told::Ended(outcome)).is_err() {
                    return;
                }
            }
        });
        Self { cases, told }
    }
}

fn check(
    kind: &'static VectorKind,
    case: &Value,
    target: &Target,
    suites: &mut HashMap<&'static str, Box<dyn Suite>>,
    tell: &Sender<Told>,
) -> Result<(), Mismatch> {
    let opened = || {
        let _ = tell.send(Told::Opened); // Nobody waits any more: the answer finds nobody, either.
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

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".into())
}

/// What a case wanted, for one that gave no answer.
pub(crate) fn wanted(kind: &VectorKind, case: &Value) -> String {
    let mut found = Vec::new();
    expectations(kind.expected, case, &mut found);
    let all = found.join(", ");
    let shown: String = all.chars().take(SHOWN).collect();
    let rest = if shown.len() < all.len() { "…" } else { "" };
    format!("{shown}{rest}")
}

fn expectations(names: &[&str], value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match names.iter().any(|expected| name.starts_with(expected)) {
                    true => found.push(value.to_string()),
                    false => expectations(names, value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| expectations(names, value, found)),
        _ => {}
    }
}
