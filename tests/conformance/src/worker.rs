//! Runs cases so that a case that panics or never ends does not stop a run.
//!
//! A call to a core runs in a thread of its own. If it does not end in time, the thread is abandoned, because our cores
//! cannot be interrupted. Cases with shared state limit the time of their own steps.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::text::excerpt;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::PRINTED_MAX;
use crate::kinds::{Check, EXPECTED, VectorKind};
use crate::suite::{Suite, Target};

/// Result of running a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CaseOutcome {
    /// The case ended with a result.
    Checked(Result<(), Mismatch>),
    /// The case panicked with this message.
    Panicked(String),
    /// The case did not end within this time.
    TimedOut(Duration),
}

/// State shared between cases.
pub(crate) struct Worker {
    target: Target,
    suites: HashMap<&'static str, Suite>,
}

impl Worker {
    /// Creates a worker that sends API scenarios to `target`.
    pub(crate) fn new(target: Target) -> Self {
        Self { target, suites: HashMap::new() }
    }

    /// Runs a case. `within` limits the time of a call to a core.
    pub(crate) fn check(&mut self, kind: &'static VectorKind, case: &Value, within: Duration) -> CaseOutcome {
        match kind.check {
            Check::Pure(check) => {
                let (sender, outcome) = mpsc::channel();
                let case = case.clone();
                thread::spawn(move || {
                    let _ = sender.send(caught(|| check(&case))); // Nobody receives it after the time limit.
                });
                outcome.recv_timeout(within).unwrap_or(CaseOutcome::TimedOut(within))
            }
            Check::Suite(open) => {
                let mut suite = match self.suites.remove(kind.name).map_or_else(|| open(&self.target), Ok) {
                    Ok(suite) => suite,
                    Err(e) => return CaseOutcome::Checked(Err(Mismatch::Broken(format!("{e:#}")))),
                };
                let outcome = caught(|| suite(case));
                match outcome {
                    // State left behind by a panic is neither used nor dropped.
                    CaseOutcome::Panicked(_) => std::mem::forget(suite),
                    _ => drop(self.suites.insert(kind.name, suite)),
                }
                outcome
            }
        }
    }
}

fn caught(check: impl FnOnce() -> Result<(), Mismatch>) -> CaseOutcome {
    let outcome = catch_unwind(AssertUnwindSafe(check));
    outcome.map_or_else(|panic| CaseOutcome::Panicked(panic_message(&*panic)), CaseOutcome::Checked)
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}

/// Returns the expected values of a case that has no result.
pub(crate) fn expected_values(case: &Value) -> String {
    let mut found = Vec::new();
    collect_expectations(case, &mut found);
    excerpt(&found.join(", "), PRINTED_MAX)
}

fn collect_expectations(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match EXPECTED.iter().any(|expected| name.starts_with(expected)) {
                    true => found.push(value.to_string()),
                    false => collect_expectations(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect_expectations(value, found)),
        _ => {}
    }
}
