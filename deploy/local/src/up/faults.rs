//! Faults of workloads for the terminal: a line when a fault begins or changes, and one when the workload recovers.
//!
//! | source | begin of a fault | end of a fault |
//! |---|---|---|
//! | ZeroScaler | Ready is False, or its reason or message changes | Ready is True; no line if it is deleted |
//! | warning about a pod | first warning in its namespace with this reason and message | none |

use common::RevisionKey;
use common_api::ZeroScaler;
use common_api::zeroscaler::conditions::READY;
use common_controller::changes::{self, Change};
use futures::future::Either;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Event;
use kube::runtime::watcher;
use kube::{Api, Client};
use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;

/// Reasons of warnings that are normal while a pod starts, or repeat another warning.
const ORDINARY: [&str; 2] = ["Unhealthy", "BackOff"];

/// Line for the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A workload or a pod has a fault.
    Fault {
        /// Namespace and name.
        object: RevisionKey,
        /// Reason and message.
        cause: String,
    },
    /// A workload is served again.
    Recovered(RevisionKey),
}

/// Known faults.
#[derive(Debug, Default)]
struct Faults {
    /// Faults of ZeroScalers.
    scalers: BTreeMap<RevisionKey, String>,
    /// Printed warnings about pods: namespace, reason and message.
    pods: BTreeSet<(String, String, String)>,
}

/// Returns the fault of a ZeroScaler that is not served: reason and message of its Ready condition.
pub(super) fn fault_of(scaler: &ZeroScaler) -> Option<String> {
    let ready = scaler.condition(READY).filter(|ready| ready.status == "False")?;
    let is_current = ready.observed_generation.is_none_or(|at| Some(at) == scaler.metadata.generation);
    is_current.then(|| match ready.message.as_str() {
        "" => ready.reason.clone(),
        message => format!("{}: {message}", ready.reason),
    })
}

impl Faults {
    fn scaler(&mut self, scaler: &ZeroScaler) -> Option<Line> {
        let key = scaler.key();
        let Some(cause) = fault_of(scaler) else {
            // An unknown or outdated condition does not end a fault.
            return if scaler.is_ready() { self.recovered(key) } else { None };
        };
        let is_new = self.scalers.insert(key.clone(), cause.clone()).as_ref() != Some(&cause);
        is_new.then_some(Line::Fault { object: key, cause })
    }

    fn recovered(&mut self, key: RevisionKey) -> Option<Line> {
        self.scalers.remove(&key)?;
        self.pods.retain(|(namespace, ..)| namespace != key.namespace());
        Some(Line::Recovered(key))
    }

    fn warning(&mut self, event: Event) -> Option<Line> {
        let (involved, reason) = (event.involved_object, event.reason.unwrap_or_default());
        let is_fault = event.type_.as_deref() == Some("Warning") && !ORDINARY.contains(&reason.as_str());
        if involved.kind.as_deref() != Some("Pod") || !is_fault {
            return None;
        }
        let object = RevisionKey::new(involved.namespace.unwrap_or_default(), involved.name.unwrap_or_default());
        let message = event.message.unwrap_or_default();
        let is_new = self.pods.insert((object.namespace().to_owned(), reason.clone(), message.clone()));
        is_new.then(|| Line::Fault { object, cause: format!("{reason}: {message}") })
    }
}

/// Watches for faults in all namespaces. The stream never ends.
pub(super) fn lines(client: &Client) -> impl Stream<Item = Line> + use<> {
    let scalers = changes::watch(Api::<ZeroScaler>::all(client.clone()), watcher::Config::default()).map(Either::Left);
    let events = changes::watch(Api::<Event>::all(client.clone()), watcher::Config::default()).map(Either::Right);
    let mut faults = Faults::default();
    stream::select(scalers, events).filter_map(move |change| {
        ready(match change {
            Either::Left(Change::Applied(scaler)) => faults.scaler(&scaler),
            Either::Left(Change::Gone(key)) => faults.recovered(key).filter(|_| false), // A deletion prints no line.
            Either::Right(Change::Applied(event)) => faults.warning(event),
            Either::Left(Change::Listed) | Either::Right(Change::Gone(_) | Change::Listed) => None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scaler(status: &str, reason: &str, message: &str) -> ZeroScaler {
        let ready = json!({"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
            "metadata": {"namespace": "ns", "name": "web"}, "spec": {"target": {"name": "web"}},
            "status": {"conditions": [ready]}}))
        .expect("a ZeroScaler")
    }

    /// Goal: each change prints one line, and so does the recovery. An unknown condition ends no fault.
    #[test]
    fn each_change_of_a_fault_prints_one_line() {
        let key = || RevisionKey::new("ns", "web");
        let fault = |cause: &str| Some(Line::Fault { object: key(), cause: cause.into() });
        let mut faults = Faults::default();
        let rows = [
            (scaler("True", "Served", ""), None),
            (scaler("False", "TargetNotFound", "none"), fault("TargetNotFound: none")),
            (scaler("False", "TargetNotFound", "none"), None),
            (scaler("Unknown", "Pending", ""), None),
            (scaler("False", "TimedOut", ""), fault("TimedOut")),
            (scaler("True", "Served", ""), Some(Line::Recovered(key()))),
            (scaler("True", "Served", ""), None),
        ];
        for (n, (scaler, expected)) in rows.into_iter().enumerate() {
            assert_eq!(faults.scaler(&scaler), expected, "row {n}");
        }
    }

    /// Goal: a warning about the pods of one workload prints one line until the workload recovers. Ordinary warnings
    /// print none.
    #[test]
    fn a_warning_about_pods_prints_one_line_until_recovery() {
        let event = |pod: &str, type_: &str, reason: &str| -> Event {
            let object = json!({"kind": "Pod", "namespace": "ns", "name": pod});
            let event =
                json!({"metadata": {}, "involvedObject": object, "type": type_, "reason": reason, "message": "m"});
            serde_json::from_value(event).expect("an Event")
        };
        let mut faults = Faults::default();
        let cause = "Failed: m".to_owned();
        let line = Some(Line::Fault { object: RevisionKey::new("ns", "web-1"), cause });
        assert_eq!(faults.warning(event("web-1", "Warning", "Failed")), line);
        assert_eq!(faults.warning(event("web-2", "Warning", "Failed")), None);
        assert_eq!(faults.warning(event("web-1", "Warning", "Unhealthy")), None);
        assert_eq!(faults.warning(event("web-1", "Normal", "Killing")), None);
        faults.scaler(&scaler("False", "CrashLoopBackOff", ""));
        faults.scaler(&scaler("True", "Served", ""));
        assert_eq!(faults.warning(event("web-1", "Warning", "Failed")), line, "a new fault after the recovery");
    }
}
