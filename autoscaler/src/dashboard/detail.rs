//! All details of one workload, as JSON.

use super::local::LocalReplica;
use super::records::{Record, time};
use super::ring::{Sample, rounded};
use super::wakes::Wake;
use crate::explain;
use autoscaler_core::history::{Entry, EntryOutcome, words};
use common::RevisionKey;
use common_api::zeroscaler::conditions::Condition;
use common_api::zeroscaler::{PortProtocol, ServicePath, ZeroScalerSpec, ZeroScalerStatus};
use serde_json::{Value, json};

const EVENTS_MAX: usize = 40;

impl LocalReplica {
    /// Returns everything that this process knows of a workload; none: there is no such object.
    pub(super) fn detail(&self, key: &RevisionKey) -> Option<Value> {
        let view = self.parts.objects.view(key)?;
        let explanation = self.explanation(key);
        let mut detail = self.row_with(key, &view, explanation.as_ref(), true, true);
        let recorded = |record: &Record| {
            let timeline: Vec<Value> = record.ring.samples.iter().map(point).collect();
            (timeline, record.wakes.last.clone())
        };
        let (timeline, wakes) = self.records.with(key, recorded).unwrap_or_default();
        let history = explanation.as_ref().map(|explanation| explanation.history.as_slice()).unwrap_or_default();
        let mut events = history_events(history);
        events.extend(condition_events(&view.status));
        for wake in &wakes {
            let ended = wake.at_ms + (wake.seconds() * 1e3) as i64;
            let (reason, message) = match &wake.failed {
                None => ("Woke", format!("the first request got its response after {:.3} s", wake.seconds())),
                Some(why) => ("WakeFailed", format!("after {:.3} s: {why}", wake.seconds())),
            };
            events.push((ended / 1000, reason.to_owned(), message));
        }
        events.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        events.truncate(EVENTS_MAX);
        let event = |(at, reason, message): Event| json!({"at": time(at), "reason": reason, "message": message});
        let decision = explanation.map(|explanation| explain::document(key, &explanation)).unwrap_or_default();
        let mut history = decision["history"].clone();
        for entry in history.as_array_mut().into_iter().flatten() {
            entry["says"] = words::reason(entry).into();
        }
        let spec = &view.object.spec;
        detail["decision"] = decision;
        detail["history"] = if history.is_null() { json!([]) } else { history };
        detail["timeline"] = timeline.into();
        // Latest first.
        detail["wakes"] = wakes.iter().rev().map(Wake::to_json).collect();
        detail["conditions"] = json!(view.status.conditions);
        detail["events"] = events.into_iter().map(event).collect();
        detail["links"] = links(self.settings.entry, key, spec, &view.status).into();
        detail["schedules"] = json!(spec.schedules);
        Some(detail)
    }
}

fn point(sample: &Sample) -> Value {
    json!({
        "at": time(i64::from(sample.at)),
        "concurrency": rounded(sample.rates.concurrency),
        "requestsPerSecond": rounded(sample.rates.requests),
        "held": sample.rates.held,
        "desired": sample.desired,
        "ready": sample.ready,
        "panic": sample.panic,
    })
}

/// Returns the URLs of a workload for a browser: each of its Services at the machine's own `entry`, and each of its
/// hosts that is a plain name. A workload with only TCP ports has none.
fn links(entry: Option<u16>, key: &RevisionKey, spec: &ZeroScalerSpec, status: &ZeroScalerStatus) -> Vec<String> {
    if !status.ports.is_empty() && status.ports.iter().all(|port| port.protocol == PortProtocol::Tcp) {
        return Vec::new();
    }
    let port = entry.map_or_else(String::new, |port| format!(":{port}"));
    let named = status.hosts.iter().filter(|host| !host.starts_with('*')).map(|host| format!("http://{host}{port}/"));
    let served = status.services.iter().filter(|service| service.path == ServicePath::Served);
    let mut services: Vec<&str> = served.map(|service| service.name.as_str()).collect();
    if services.is_empty() {
        services.push(spec.service_name());
    }
    let own = |service: &str| format!("http://{service}.{}.localhost{port}/", key.namespace());
    let own = services.into_iter().filter(|_| entry.is_some()).map(own);
    own.chain(named).collect()
}

type Event = (i64, String, String);

/// Returns the events in a history: changes of the scale, panics, obstacles.
fn history_events(history: &[Entry]) -> Vec<Event> {
    let mut panicking = false;
    let mut events = Vec::new();
    for entry in history {
        let mut push = |reason: &str, message: String| events.push((entry.since, reason.to_owned(), message));
        match &entry.outcome {
            EntryOutcome::Scale { panicking: now, panic, .. } if *now != panicking => {
                panicking = *now;
                let reason = if panicking { "PanicBegan" } else { "PanicEnded" };
                push(reason, format!("the average load of the panic window is {panic:.1}"));
            }
            EntryOutcome::Action(action) if action.patched => {
                let (from, to) = (action.replicas.unwrap_or_default(), action.wanted.unwrap_or_default());
                push("Scaled", format!("{from} → {to}: {}", action.because.explain()));
            }
            EntryOutcome::Action(action) if action.wanted.is_none() && action.replicas.is_none() => {
                push("NotScaled", action.because.explain().to_owned());
            }
            _ => {}
        }
    }
    events
}

/// Returns the last transition of each condition as an event.
fn condition_events(status: &ZeroScalerStatus) -> impl Iterator<Item = Event> {
    status.conditions.iter().map(|condition: &Condition| {
        let Condition { type_, status, reason, message, last_transition_time, .. } = condition;
        let suffix = if message.is_empty() { String::new() } else { format!(": {message}") };
        (last_transition_time.0.as_second(), reason.clone(), format!("{type_} is {status}{suffix}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_api::zeroscaler::{PortStatus, ServiceStatus};

    #[test]
    fn each_service_that_a_browser_can_call_has_a_link() {
        let (key, spec) = (RevisionKey::new("ns", "a"), ZeroScalerSpec::deployment("a"));
        let mut status = ZeroScalerStatus { hosts: vec!["*.b.c".into(), "b.c".into()], ..Default::default() };
        assert_eq!(links(Some(80), &key, &spec, &status), ["http://a.ns.localhost:80/", "http://b.c:80/"]);
        let service = |name: &str, path| ServiceStatus { name: name.to_owned(), path, ..ServiceStatus::default() };
        status.services = vec![service("one", ServicePath::Served), service("two", ServicePath::Served)];
        status.services.push(service("metrics", ServicePath::Direct));
        let own = ["http://one.ns.localhost:80/", "http://two.ns.localhost:80/"];
        assert_eq!(links(Some(80), &key, &spec, &status)[..2], own);
        assert_eq!(links(None, &key, &spec, &status), ["http://b.c/"]);
        status.ports = vec![PortStatus { protocol: PortProtocol::Tcp, ..PortStatus::default() }];
        assert!(links(Some(80), &key, &spec, &status).is_empty());
    }
}
