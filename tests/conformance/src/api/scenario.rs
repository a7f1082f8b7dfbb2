//! Runs a scenario from its first step to its cleanup.
//!
//! Each step ends in time, whatever the server does. A step without a response fails and reports the expectation, and
//! the next scenario runs.

use std::collections::HashMap;
use std::time::Duration;

use common::text::excerpt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::exchange::{Exchange, HttpResponse, Stream};
use super::matching::Expectation;
use super::template::Bindings;
use crate::Mismatch;
use crate::compare::PRINTED_MAX;

/// Interval at which a step with `poll_s` is repeated.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Default time to wait for an event, in seconds.
const EVENT_WAIT: f64 = 10.0;

/// Maximum time for a response, in addition to the waits of its step.
const RESPONSE_MAX: Duration = Duration::from_secs(30);

struct Scenario<'a> {
    exchange: &'a Exchange,
    bindings: Bindings,
    streams: HashMap<String, Watch>,
}

struct Watch {
    stream: Stream,
    /// Events that no step has consumed yet.
    unread: Vec<Value>,
}

/// Runs one scenario. `namespace` is its namespace, or else a unique name for its objects.
pub(super) async fn run(exchange: &Exchange, case: &Value, namespace: &str) -> Result<(), Mismatch> {
    let mut bindings = Bindings::default();
    bindings.set("ns", namespace);
    bindings.set("token", &exchange.token);
    let mut scenario = Scenario { exchange, bindings, streams: HashMap::new() };
    let has_namespace = case["namespace"] == true;
    let mut result = Ok(());
    if has_namespace {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let step = json!({"method": "POST", "path": "/api/v1/namespaces", "body": body, "want": {"status": 201}});
        result = scenario.step(&step).await.map_err(|why| Mismatch::Broken(format!("namespace: {why}")));
    }
    let steps = case["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, step) in steps.iter().enumerate() {
        if result.is_ok() {
            result = scenario.step(step).await.map_err(|why| Mismatch::Broken(format!("step {index}: {why}")));
        }
    }
    drop(std::mem::take(&mut scenario.streams));
    let paths = case["cleanup"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_string);
    for path in paths.chain(has_namespace.then(|| format!("/api/v1/namespaces/{namespace}"))) {
        if let Ok(path) = scenario.bindings.fill_text(&path) {
            let _ = timeout(RESPONSE_MAX, exchange.request(&json!({"method": "DELETE", "path": path}))).await;
        }
    }
    result
}

fn seconds(value: &Value, otherwise: f64) -> Duration {
    Duration::from_secs_f64(value.as_f64().unwrap_or(otherwise).clamp(0.0, 600.0))
}

/// Returns the maximum duration of a step: a response, plus the waits of the step.
fn limit(step: &Value) -> Duration {
    let waits = seconds(&step["wait_s"], 0.0) + seconds(&step["poll_s"], 0.0);
    let events = ["watch_events", "watch_want_end"].into_iter().filter_map(|kind| step.get(kind));
    let patience = events.map(|watch| {
        let count = watch["want"].as_array().map_or(1, Vec::len);
        seconds(&watch["within_s"], EVENT_WAIT) * u32::try_from(count).unwrap_or(u32::MAX)
    });
    RESPONSE_MAX + waits + patience.sum::<Duration>()
}

/// Describes a failed step: its request, the failure and the expectation.
fn describe(step: &Value, why: &str) -> String {
    let kinds = ["watch_open", "watch_events", "watch_want_end"];
    let (kind, inner) = kinds.iter().find_map(|kind| Some((*kind, step.get(kind)?))).unwrap_or(("", step));
    let what = [&inner["method"], &inner["path"], &inner["of"]].map(|part| part.as_str().unwrap_or_default());
    let what: Vec<_> = [kind].into_iter().chain(what).filter(|word| !word.is_empty()).collect();
    let want = if inner["want"].is_null() { "the end".to_owned() } else { inner["want"].to_string() };
    format!("{}: {why}; wanted {}", what.join(" "), excerpt(&want, PRINTED_MAX))
}

impl Scenario<'_> {
    async fn step(&mut self, step: &Value) -> Result<(), String> {
        let before = self.bindings.clone();
        let limit = limit(step);
        let done = match timeout(limit, self.run_step(step)).await {
            Ok(done) => done,
            Err(_) => Err(format!("no end within {limit:?}")),
        };
        if done.is_err() && step.get("known_difference").is_some() {
            self.bindings = before;
            return Ok(());
        }
        done.map_err(|why| describe(step, &why))
    }

    async fn run_step(&mut self, step: &Value) -> Result<(), String> {
        if step.get("method").is_some() {
            self.request(step).await
        } else if let Some(open) = step.get("watch_open") {
            self.open(open).await
        } else if let Some(events) = step.get("watch_events") {
            self.events(events).await
        } else if let Some(end) = step.get("watch_want_end") {
            self.end(end).await
        } else {
            Err("unknown step".into())
        }
    }

    /// Returns a step without its expectation, with its placeholders replaced.
    fn sent(&self, step: &Value) -> Result<Value, String> {
        let mut sent = step.clone();
        if let Some(fields) = sent.as_object_mut() {
            fields.remove("want");
        }
        self.bindings.fill(&sent)
    }

    async fn request(&mut self, step: &Value) -> Result<(), String> {
        if step.get("wait_s").is_some() {
            sleep(seconds(&step["wait_s"], 0.0)).await;
        }
        let sent = self.sent(step)?;
        let deadline = Instant::now() + seconds(&step["poll_s"], 0.0);
        loop {
            let answer = self.exchange.request(&sent).await.map_err(|error| format!("{error:#}"))?;
            let mut trial = self.bindings.clone();
            match check(&step["want"], &answer, &mut trial) {
                Ok(()) => {
                    self.bindings = trial;
                    return Ok(());
                }
                Err(why) if Instant::now() >= deadline => return Err(why),
                Err(_) => sleep(POLL_EVERY).await,
            }
        }
    }

    async fn open(&mut self, step: &Value) -> Result<(), String> {
        let sent = self.sent(step)?;
        let (answer, stream) = self.exchange.open(&sent).await.map_err(|error| format!("{error:#}"))?;
        check(&step["want"], &answer, &mut self.bindings)?;
        let name = step["as"].as_str().unwrap_or_default().to_string();
        self.streams.insert(name, Watch { stream, unread: Vec::new() });
        Ok(())
    }

    async fn events(&mut self, step: &Value) -> Result<(), String> {
        let name = step["of"].as_str().unwrap_or_default();
        let patience = seconds(&step["within_s"], EVENT_WAIT);
        let wanted = step["want"].as_array().ok_or("watch_events without want")?;
        let watch = self.streams.get_mut(name).ok_or_else(|| format!("no stream {name}"))?;
        if step["any_order"] == true {
            let mut events = Vec::new();
            for _ in wanted {
                events.push(watch.next(patience).await?);
            }
            let body = Value::Array(wanted.clone());
            let rule = json!({"contains": [""], "absent": step["absent"], "mode": step["mode"]});
            return Expectation::from_step(&rule, &body)?.check(&Value::Array(events), &mut self.bindings);
        }
        for (index, wanted) in wanted.iter().enumerate() {
            let mut body = wanted.clone();
            let optional = body.as_object_mut().and_then(|fields| fields.remove("optional")) == Some(Value::Bool(true));
            let event = match watch.next(patience).await {
                Err(_) if optional => continue,
                event => event.map_err(|why| format!("event {index}: {why}, wanted {wanted}"))?,
            };
            let mut trial = self.bindings.clone();
            match Expectation::from_step(step, &body)?.check(&event, &mut trial) {
                Ok(()) => self.bindings = trial,
                Err(_) if optional => watch.unread.push(event),
                Err(why) => return Err(format!("event {index}: {why}")),
            }
        }
        Ok(())
    }

    async fn end(&mut self, step: &Value) -> Result<(), String> {
        let name = step["of"].as_str().unwrap_or_default();
        let watch = self.streams.get_mut(name).ok_or_else(|| format!("no stream {name}"))?;
        if let Some(event) = watch.unread.first() {
            return Err(format!("got {event}"));
        }
        match timeout(seconds(&step["within_s"], EVENT_WAIT), watch.stream.next()).await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(event))) => Err(format!("got {event}")),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err("the stream did not end".into()),
        }
    }
}

impl Watch {
    async fn next(&mut self, patience: Duration) -> Result<Value, String> {
        if let Some(event) = self.unread.pop() {
            return Ok(event);
        }
        match timeout(patience, self.stream.next()).await {
            Ok(Ok(Some(event))) => Ok(event),
            Ok(Ok(None)) => Err("the stream ended".into()),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err(format!("nothing came within {patience:?}")),
        }
    }
}

/// Compares status, headers and body.
fn check(want: &Value, answer: &HttpResponse, bindings: &mut Bindings) -> Result<(), String> {
    let allowed = match &want["status"] {
        Value::Array(codes) => codes.iter().any(|code| *code == answer.status),
        code => *code == answer.status,
    };
    if !allowed {
        return Err(format!("status: wanted {}, got {}: {}", want["status"], answer.status, answer.body));
    }
    for (name, wanted) in want["headers"].as_object().into_iter().flatten() {
        let got = answer.headers.get(name).map(|value| value.to_str().unwrap_or_default());
        match (wanted.as_str(), got) {
            (None, None) => {}
            (Some(wanted), Some(got)) => {
                bindings.matches(wanted, got).map_err(|why| format!("header {name}: {why}"))?
            }
            _ => return Err(format!("header {name}: wanted {wanted}, got {got:?}")),
        }
    }
    Expectation::from_step(want, &want["body"])?.check(&answer.body, bindings)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Goal: if a server never responds, the step fails after its limit, and the failure contains the expectation.
    #[tokio::test(start_paused = true)]
    async fn a_step_without_a_response_fails_in_time_and_reports_its_expectation() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("an address"));
        let exchange = Exchange::new(&url, "secret".into()).expect("a client");
        let step = json!({"method": "GET", "path": "/version", "poll_s": 5, "want": {"status": 200}});
        let case = json!({"steps": [step], "cleanup": ["/version"]});
        let start = Instant::now();
        let failure = run(&exchange, &case, "t-1").await.expect_err("no response").to_string();
        assert!(start.elapsed() < 3 * RESPONSE_MAX, "{:?}", start.elapsed());
        let wanted = "step 0: GET /version: no end within 35s; wanted {\"status\":200}";
        assert!(failure.ends_with(wanted), "{failure}");
    }

    #[test]
    fn the_limit_of_a_step_covers_its_waits() {
        let events = json!({"watch_events": {"of": "w", "within_s": 3, "want": [{}, {}]}});
        assert_eq!(limit(&events), RESPONSE_MAX + Duration::from_secs(6));
        let end = json!({"watch_want_end": {"of": "w"}});
        assert_eq!(limit(&end), RESPONSE_MAX + Duration::from_secs_f64(EVENT_WAIT));
        assert_eq!(limit(&json!({"method": "GET", "wait_s": 2, "poll_s": 10})), RESPONSE_MAX + Duration::from_secs(12));
        assert_eq!(describe(&end, "no end"), "watch_want_end w: no end; wanted the end");
    }
}
