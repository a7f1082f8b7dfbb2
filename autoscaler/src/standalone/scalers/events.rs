//! Events of ZeroScalers, as shown by `kubectl describe`, one for each change.
//!
//! An event reports a difference between the last written status and the one that replaces it. It therefore comes with
//! the status, after a wake and merged like the status, and not with each reconcile. The recorder sends it in the
//! background once the status is written, so no event is written twice. An event is lost if the API server rejects it,
//! or the process ends before it is sent; the condition remains.
//!
//! | reason | condition |
//! |---|---|
//! | that of the condition, such as `Invalid`, `CrashLoop`, `HorizontalPodAutoscaler`, `ServiceNotOwned`, `FailedUpdateScale`, `TimedOut` | Ready, HostsOwned, MetricsMeasured, PortsAllocated, AnswersResolved, ProtocolsDetected or PodsOwned becomes False, or is False for another reason, or an edit has another fault |
//! | `Adopted` | target and Service were adopted |
//! | `NetworkPolicy` | Ready begins to warn of a policy that blocks all activators |
//! | `Scaled` | replicas were changed; successive changes are one event |
//!
//! Not here: `ReplicasContested`, which is reported at once, once for each conflict.

use crate::engine::scaler::Scaled;
use common_api::ZeroScaler;
use common_api::zeroscaler::ZeroScalerStatus;
use common_api::zeroscaler::conditions::{
    ADOPTED, ANSWERS_RESOLVED, Condition, HOSTS_OWNED, METRICS_MEASURED, PODS_OWNED, PORTS_ALLOCATED,
    PROTOCOLS_DETECTED, READY, find,
};
use common_controller::Severity;

/// Conditions whose faults are reported.
pub(super) const REPORTED: [&str; 7] =
    [READY, HOSTS_OWNED, METRICS_MEASURED, PORTS_ALLOCATED, ANSWERS_RESOLVED, PROTOCOLS_DETECTED, PODS_OWNED];

/// Content of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusEvent {
    pub(crate) severity: Severity,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Returns the changes from the status of `object` to `status`, which is about to be written. `scaled` is the change of
/// replicas meanwhile.
pub(crate) fn changes(object: &ZeroScaler, status: &ZeroScalerStatus, scaled: Option<&Scaled>) -> Vec<StatusEvent> {
    let before = object.status.clone().unwrap_or_default();
    let mut events: Vec<StatusEvent> = Vec::new();
    for type_ in REPORTED {
        let (was, is) = (find(&before.conditions, type_), find(&status.conditions, type_));
        if let Some(is) = is.filter(|is| is.status == "False" && was.is_none_or(|was| is_other(was, is))) {
            // Ready repeats the content of another condition.
            let warning = event(Severity::Warning, &is.reason, is.message.clone());
            if !events.contains(&warning) {
                events.push(warning);
            }
        }
    }
    let warns = |conditions: &[Condition]| {
        let ready = find(conditions, READY).filter(|ready| ready.status == "True" && !ready.message.is_empty());
        ready.map(|ready| ready.message.clone())
    };
    if let Some(why) = warns(&status.conditions).filter(|_| warns(&before.conditions).is_none()) {
        events.push(event(Severity::Warning, "NetworkPolicy", why));
    }
    let holds = |status: &ZeroScalerStatus| find(&status.conditions, ADOPTED).is_some_and(|c| c.status == "True");
    if holds(status) && !holds(&before) {
        events.push(event(Severity::Normal, "Adopted", adopted(object, status)));
    }
    if let Some(scaled) = scaled.filter(|scaled| scaled.from != scaled.to) {
        events.push(event(Severity::Normal, Scaled::REASON, scaled.to_string()));
    }
    events
}

/// Reports whether a fault differs from `was`. The message may change with each retry, so a different message counts
/// only if the object's version has changed too.
fn is_other(was: &Condition, is: &Condition) -> bool {
    let is_edited = was.observed_generation != is.observed_generation && was.message != is.message;
    was.status != "False" || was.reason != is.reason || is_edited
}

fn adopted(object: &ZeroScaler, status: &ZeroScalerStatus) -> String {
    let (target, found) = (&object.spec.target, status.adopted.clone().unwrap_or_default());
    let replicas = match found.replicas {
        None => String::new(),
        Some(1) => " with 1 replica".to_owned(),
        Some(replicas) => format!(" with {replicas} replicas"),
    };
    let services = found.services.iter().map(|service| {
        let selector: Vec<_> = service.selector.iter().map(|(label, value)| format!("{label}={value}")).collect();
        format!(", and Service {} with selector {}", service.name, selector.join(","))
    });
    let services = match &status.service {
        Some(made) if found.services.is_empty() && made == object.spec.service_name() => {
            format!(", and created Service {made} for it")
        }
        _ => services.collect(), // Empty if another Service was served until now.
    };
    format!("Adopted {} {}{replicas}{services}", target.kind, target.name)
}

fn event(severity: Severity, reason: &str, message: String) -> StatusEvent {
    StatusEvent { severity, reason: reason.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Timestamp;
    use common_api::zeroscaler::conditions::{ConditionStatus, ConditionValue, set};

    /// Returns an object whose status has these conditions for this generation.
    fn with_conditions(generation: i64, conditions: &[(&str, ConditionStatus, &str, &str)]) -> ZeroScaler {
        let mut object = ZeroScaler::new("hello", common_api::ZeroScalerSpec::deployment("hello"));
        object.metadata.generation = Some(generation);
        let mut status = ZeroScalerStatus { observed_generation: Some(generation), ..ZeroScalerStatus::default() };
        for (type_, is, reason, message) in conditions {
            let condition = ConditionValue { status: *is, reason, message };
            set(&mut status.conditions, type_, condition, Some(generation), Timestamp::from_secs(1));
        }
        object.status = Some(status);
        object
    }

    fn events_between(before: &ZeroScaler, after: &ZeroScaler) -> Vec<(String, String)> {
        let status = after.status.clone().unwrap_or_default();
        changes(before, &status, None).into_iter().map(|event| (event.reason, event.message)).collect()
    }

    /// Goal: a fault is reported once, whatever its message. Another fault, and a fault of the next version, are
    /// reported again.
    #[test]
    fn a_fault_is_reported_once() {
        use ConditionStatus::{False, True};
        let fine = with_conditions(1, &[(READY, True, "Served", "")]);
        let wrong =
            |generation, reason: &str, message: &str| with_conditions(generation, &[(READY, False, reason, message)]);
        let (quota, later) =
            (wrong(1, "FailedUpdateScale", "used 3 of 3"), wrong(1, "FailedUpdateScale", "used 4 of 4"));
        let rows = [
            (&fine, &quota, Some("FailedUpdateScale")),
            (&quota, &quota, None),
            (&quota, &later, None), // The same fault; its message changes with each retry.
            (&quota, &wrong(1, "TimedOut", ""), Some("TimedOut")),
            (&quota, &fine, None),
            (&fine, &wrong(2, "Invalid", "spec.scale.min"), Some("Invalid")),
            (&wrong(2, "Invalid", "spec.scale.min"), &wrong(3, "Invalid", "spec.scale.min"), None),
            (&wrong(2, "Invalid", "spec.scale.min"), &wrong(3, "Invalid", "spec.hosts[0]"), Some("Invalid")),
        ];
        for (n, (before, after, expected)) in rows.into_iter().enumerate() {
            let reasons: Vec<_> = events_between(before, after).into_iter().map(|(reason, _)| reason).collect();
            assert_eq!(reasons, expected.into_iter().collect::<Vec<_>>(), "row {n}");
        }
        let lost = [(READY, False, "HostConflict", "a is b's"), (HOSTS_OWNED, False, "HostConflict", "a is b's")];
        assert_eq!(events_between(&fine, &with_conditions(1, &lost)).len(), 1, "two conditions, one event");
    }

    #[test]
    fn changes_of_replicas_are_reported() {
        let born = with_conditions(1, &[(ADOPTED, ConditionStatus::True, "Adopted", "")]);
        let way = |from, to| Scaled { kind: "Deployment".into(), name: "hello".into(), from, to, why: "load".into() };
        let of = |way: &Scaled| changes(&born, &born.status.clone().expect("a status"), Some(way));
        assert_eq!(of(&way(0, 3))[0].message, "Scaled Deployment hello from 0 to 3: load");
        assert_eq!(of(&way(0, 0)), [], "there and back");
    }
}
