//! Tests of the binary against a mock API server and a mock dashboard: its output, its streams and its exit code.

#![allow(missing_docs, reason = "tests")]

mod checking;
mod forwarding;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const LIST: &str = "GET /apis/zeroscale.dev/v1alpha1/namespaces/shop/zeroscalers";
const ONE: &str = "/apis/zeroscale.dev/v1alpha1/namespaces/shop/zeroscalers/hello";
/// Time of each server's clock.
const DATE: &str = "Mon, 01 Jan 2024 00:00:00 GMT";

/// Function from `METHOD PATH` and a body to the status and body of the response.
type Respond = Arc<dyn Fn(&str, &str) -> (u16, Value) + Send + Sync>;

/// Mock server that runs as long as the process and serves one request per connection.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

impl Server {
    fn start(respond: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (address, requests) = (listener.local_addr().expect("bound"), Arc::default());
        let respond: Respond = Arc::new(respond);
        let server = Self { address, requests: Arc::clone(&requests) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if forwarding::is_port_forward(&stream) {
                    let respond = respond.clone();
                    std::thread::spawn(move || forwarding::forward(stream, &respond));
                } else {
                    answer(stream, &respond, &requests);
                }
            }
        });
        server
    }

    fn requests(&self) -> Vec<(String, String)> {
        self.requests.lock().expect("not poisoned").clone()
    }
}

fn answer(stream: TcpStream, respond: &Respond, requests: &Mutex<Vec<(String, String)>>) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    loop {
        let mut head = String::new();
        if reader.read_line(&mut head).unwrap_or(0) == 0 || head.trim().is_empty() {
            break;
        }
        if let Some(value) = head.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    let _ = reader.read_exact(&mut body);
    let mut words = line.split_whitespace();
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default().split('?').next().unwrap_or_default();
    let request = format!("{method} {path}");
    let body = text(&body);
    requests.lock().expect("not poisoned").push((request.clone(), body.clone()));
    let (status, body) = respond(&request, &body);
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} x\r\ndate: {DATE}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let _ = reader.get_mut().write_all(format!("{head}{body}").as_bytes());
}

/// Returns the last patch.
fn patched(api: &Server) -> Value {
    let patch = api.requests().into_iter().rfind(|(line, _)| line.starts_with("PATCH ")).expect("a patch");
    serde_json::from_str(&patch.1).expect("JSON")
}

/// Returns an API server's error response.
fn failure(code: u16, reason: &str, message: &str, details: Value) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message, "details": details});
    (code, status)
}

/// Returns the error response for a ZeroScaler `nobody`, which does not exist.
fn not_found() -> (u16, Value) {
    failure(404, "NotFound", "not found", json!({"name": "nobody", "kind": "zeroscalers"}))
}

fn scaler(name: &str, spec: Value, status: Value) -> Value {
    let mut all = json!({"target": {"kind": "Deployment", "name": name}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "spec": all, "status": status,
        "metadata": {"name": name, "namespace": "shop", "generation": 1, "uid": name, "creationTimestamp": "2020-01-01T00:00:00Z"}})
}

fn listed(items: &[Value]) -> (u16, Value) {
    let metadata = json!({"resourceVersion": "1"});
    let kind = "ZeroScalerList";
    (200, json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": kind, "metadata": metadata, "items": items}))
}

/// Runs the binary against an API server.
fn run(api: SocketAddr, words: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    command_for(api, folder.path()).args(words).output().expect("started")
}

/// Returns a command that runs the binary with a kubeconfig, written to that folder, for an API server.
fn command_for(api: SocketAddr, folder: &Path) -> Command {
    let kubeconfig = folder.join("kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: c, user: u, namespace: \
         shop}}}}], users: [{{name: u, user: {{}}}}], clusters: [{{name: c, cluster: {{server: 'http://{api}'}}}}]}}"
    );
    std::fs::write(&kubeconfig, text).expect("written");
    let mut command = command();
    command.env("KUBECONFIG", kubeconfig);
    command
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-zeroscale"));
    command.env_clear();
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Goal: one table has the data of ZeroScalers and dashboard. Without the dashboard the rest is printed and standard
/// error says what is missing. A pipe gets no colours.
#[test]
fn a_table_merges_zeroscalers_with_the_dashboards_data() {
    let asleep = json!({"state": "Asleep", "min": 0, "max": 3, "pods": {"ready": 0, "actual": 0}});
    let awake = json!({"state": "Awake", "min": 0, "pods": {"ready": 1, "actual": 1}, "desired": 1});
    let both = [scaler("hello", json!({}), awake), scaler("still", json!({}), asleep)];
    let api = Server::start(move |request, _| match request {
        LIST => listed(&both),
        _ => failure(403, "Forbidden", "pods is forbidden", json!({"kind": "pods"})),
    });
    let hello = json!({"namespace": "shop", "name": "hello", "target": "Deployment/hello", "state": "Awake",
        "paused": false, "pods": {"ready": 2, "actual": 2, "desired": null}, "min": null, "max": null,
        "requestsPerSecond": 12.5, "concurrency": 3, "held": 4, "why": "the load asks for it", "owner": ""});
    let replica = json!({"name": "autoscaler-1", "answered": false, "error": "gone"});
    let listing = json!({"now": "2026-01-01T00:00:00Z", "replicas": [replica], "workloads": [hello]});
    let dashboard = Server::start(move |_, _| (200, listing.clone()));
    let address = format!("http://{}", dashboard.address);
    let output = run(api.address, &["status", "--address", &address]);
    let (table, warnings) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{warnings}");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "STATE", "PODS", "MIN", "MAX", "REQ/S", "HELD", "AGE", "WHY"]);
    assert_eq!(lines[1][..7], ["hello", "Awake", "2/2", "-", "-", "12", "4"], "{table}");
    assert_eq!(lines[2][..7], ["still", "Asleep", "0/0", "0", "3", "-", "-"], "{table}");
    assert!(warnings.contains("autoscaler-1 did not respond") && warnings.contains("gone"), "{warnings}");
    assert!(!table.contains('\u{1b}'), "{table:?}");

    let output = run(api.address, &["status"]);
    let (table, warnings) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && table.contains("hello") && table.lines().count() == 3, "{table}{warnings}");
    assert!(warnings.contains("shown without load") && warnings.contains("pods is forbidden"), "{warnings}");

    let json = run(api.address, &["status", "-o", "json", "--address", &address]).stdout;
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!((&json["workloads"][0]["held"], &json["workloads"][1]["state"]), (&json!(4.0), &json!("Asleep")));
    let names = text(&run(api.address, &["status", "-o", "name", "--address", &address]).stdout);
    assert_eq!(names, "zeroscaler.zeroscale.dev/hello\nzeroscaler.zeroscale.dev/still\n");
}

/// Goal: each kind of failure is named on standard error and has an exit code for scripts.
#[test]
fn each_failure_is_reported_with_its_exit_code() {
    let named = Server::start(|request, _| match request {
        LIST => listed(&[]),
        _ => not_found(),
    });
    let undefined =
        Server::start(|_, _| failure(404, "NotFound", "the server could not find the requested resource", json!({})));
    let forbidden = Server::start(|_, _| {
        failure(403, "Forbidden", "zeroscalers is forbidden: User \"me\" cannot list", json!({"kind": "zeroscalers"}))
    });
    let stranger = Server::start(|_, _| failure(401, "Unauthorized", "Unauthorized", json!({})));
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let rows: [(SocketAddr, &[&str], &str); 11] = [
        (named.address, &["status", "nobody"], "no ZeroScaler \"nobody\" in namespace \"shop\""),
        (named.address, &["wake", "nobody"], "no ZeroScaler \"nobody\" in namespace \"shop\""),
        (named.address, &["pause", "a/b/c"], "must be NAME or NAMESPACE/NAME"),
        (named.address, &["status", "--context", "other"], "other"),
        (undefined.address, &["status"], "has no definition of ZeroScalers"),
        (undefined.address, &["sleep", "hello"], "has no definition of ZeroScalers"),
        (forbidden.address, &["status"], "User \"me\" cannot list"),
        (stranger.address, &["status"], "rejects your credentials"),
        (gone, &["status"], "cannot be reached"),
        (gone, &["check"], "cannot be reached"),
        (named.address, &["why", "hello", "--address", "nonsense"], "--address \"nonsense\""),
    ];
    for (api, words, expected) in rows {
        let output = run(api, words);
        let errors = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{words:?}: {errors}");
        assert!(errors.contains("error: ") && errors.contains(expected), "{words:?}: {errors}");
    }
    let output = run(named.address, &["status"]);
    assert!(output.status.success() && text(&output.stderr).contains("no ZeroScalers in namespace shop"));
}

#[test]
fn invalid_arguments_and_unusable_kubeconfigs_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let torn = write("torn", "apiVersion: v1\nclusters: [{name: c, cluster: {serv");
    let half =
        write("half", "{apiVersion: v1, kind: Config, current-context: a, contexts: [], clusters: [], users: []}");
    for (path, expected) in
        [(torn.as_str(), "torn"), (half.as_str(), "half"), ("/nowhere/kubeconfig", "/nowhere/kubeconfig")]
    {
        let output = command().args(["status", "--kubeconfig", path]).output().expect("started");
        let errors = text(&output.stderr);
        assert!(output.status.code() == Some(1) && errors.contains(expected), "{errors}");
    }
    let output = command().arg("status").output().expect("started");
    assert!(text(&output.stderr).contains("no kubeconfig is found"), "{}", text(&output.stderr));
    for words in [
        &["stauts"][..],
        &["wake"],
        &["status", "-A", "hello"],
        &["top", "--sort", "age"],
        &["wake", "a", "--timeout", "soon"],
        &[],
    ] {
        let output = command().args(words).output().expect("started");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
    }
}

/// Returns the mock responses about the ZeroScaler `hello`, whose autoscaler reports `result` of each request. The API
/// server stores times with `utc` in place of `Z`.
fn waking(result: &'static str, utc: &'static str) -> impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static {
    let written = Mutex::new(None::<Value>);
    move |request, body| {
        let mut written = written.lock().expect("not poisoned");
        if request.starts_with("PATCH ") {
            let patch: Value = serde_json::from_str(body).expect("JSON");
            let at = patch["spec"]["request"]["at"].as_str().expect("a time").replace('Z', utc);
            *written = Some(json!({"state": "Awake", "at": at}));
        }
        let (mut spec, mut status) = (json!({}), json!({"state": "Asleep"}));
        if let Some(request) = &*written {
            spec["request"] = request.clone();
            status["request"] = json!({"state": "Awake", "at": request["at"], "result": result, "message": "too busy"});
        }
        (200, scaler("hello", spec, status))
    }
}

/// Goal: a wake edits one field of the ZeroScaler, and the autoscaler's report ends the command, in any time notation
/// that the API server stores.
#[test]
fn the_autoscalers_report_ends_a_wake() {
    for (result, utc, code, expected) in [
        ("Done", "Z", 0, "zeroscaler.zeroscale.dev/hello wakes"),
        ("Kept", "+00:00", 1, "the request is not carried out: too busy"),
    ] {
        let api = Server::start(waking(result, utc));
        let output = run(api.address, &["wake", "hello"]);
        let patch = patched(&api);
        assert_eq!(patch["spec"]["request"]["state"], "Awake", "{patch}");
        assert_eq!(patch.as_object().map(serde_json::Map::len), Some(1), "nothing else: {patch}");
        let output_text = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{output_text}");
        assert!(output_text.contains(expected), "{output_text}");
        let requests = api.requests();
        assert!(requests.iter().all(|(line, _)| line.ends_with(ONE)), "no other right is used: {requests:?}");
    }
}

/// Goal: each of several workloads is requested even if an earlier one failed, and all failures are reported.
#[test]
fn a_failed_request_does_not_stop_the_next_ones() {
    let hello = waking("Done", "Z");
    let api = Server::start(move |request, body| match request.split_once(' ') {
        Some((_, ONE)) => hello(request, body),
        Some((_, path)) if path.ends_with("/nobody") => not_found(),
        _ => failure(403, "Forbidden", "User \"me\" cannot get it", json!({"kind": "zeroscalers"})),
    });
    let output = run(api.address, &["wake", "nobody", "hello", "secret"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(text(&output.stdout), "zeroscaler.zeroscale.dev/hello wakes\n", "{errors}");
    for expected in ["no ZeroScaler \"nobody\" in namespace \"shop\"", "shop/secret: ", "User \"me\" cannot get it"] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
}

/// Goal: `--watch` continues after a failed read and warns about it. Method: the second read fails, and the change seen
/// by the third is printed.
#[test]
fn a_failed_read_does_not_end_a_watch() {
    let reads = AtomicUsize::new(0);
    let now = |state: &str| listed(&[scaler("hello", json!({}), json!({"state": state}))]);
    let api = Server::start(move |request, _| match request {
        LIST => match reads.fetch_add(1, Ordering::Relaxed) {
            0 => now("Awake"),
            1 => failure(403, "Forbidden", "not just now", json!({"kind": "zeroscalers"})),
            _ => now("Asleep"),
        },
        _ => failure(403, "Forbidden", "no", json!({})),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = command_for(api.address, folder.path());
    command.args(["status", "--watch"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let is_printed = lines.map_while(Result::ok).any(|line| line.contains("Asleep"));
    let _ = child.kill();
    let errors = text(&child.wait_with_output().expect("ended").stderr);
    assert!(is_printed, "{errors}");
    assert_eq!(errors.matches("not just now; trying again").count(), 1, "{errors}");
}

/// Goal: an installed definition that is older than a field is reported, since the API server drops the field and
/// returns 200.
#[test]
fn a_field_that_the_api_server_drops_is_an_error() {
    for (word, field) in
        [("pause", "spec.paused = true"), ("wake", "spec.request = Awake"), ("sleep", "spec.request = Asleep")]
    {
        let api = Server::start(|_, _| (200, scaler("hello", json!({}), json!({"state": "Awake"}))));
        let output = run(api.address, &[word, "hello"]);
        let errors = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{word}: {errors}");
        for part in [field, "definition", "check"] {
            assert!(errors.contains(part), "{word}: {part} in {errors}");
        }
        assert!(patched(&api)["spec"].is_object(), "{word}");
    }
}

/// Goal: a release of everything needs an explicit argument.
#[test]
fn a_release_needs_an_explicit_selection() {
    let api = Server::start(|_, _| listed(&[]));
    let output = run(api.address, &["release"]);
    let errors = text(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("nothing is selected"), "{errors}");
    assert!(api.requests().is_empty(), "{:?}", api.requests());
    assert!(run(api.address, &["release", "--namespace", "shop"]).status.success());
}
