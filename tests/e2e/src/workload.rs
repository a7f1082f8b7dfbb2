//! Manifests of test workloads.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Deployment of the sample program, with its Service and ZeroScaler.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name of all three.
    pub name: String,
    /// Initial replicas.
    pub replicas: i32,
    /// Environment of the program, which configures it.
    pub env: BTreeMap<String, String>,
    /// Spec of the ZeroScaler, without its target.
    pub spec: Value,
    /// `http1` or `h2c`.
    pub protocol: &'static str,
    /// Readiness probe of the container, as Kubernetes JSON.
    pub readiness: Option<Value>,
    /// CPU time that the container requests, such as `100m`.
    pub cpu: Option<&'static str>,
}

impl Workload {
    /// Creates a workload at zero, with the shortest stable window, so that tests observe how it scales to zero again.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            replicas: 0,
            env: BTreeMap::new(),
            spec: json!({}),
            protocol: "http1",
            readiness: None,
            cpu: None,
        }
        .set("scale.window", "6s")
    }

    /// Sets the initial replicas.
    pub fn replicas(mut self, replicas: i32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets a variable of the program's environment.
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.env.insert(name.to_owned(), value.to_string());
        self
    }

    /// Sets a field of the ZeroScaler's spec, such as `scale.max`.
    pub fn set(mut self, field: &str, value: impl Into<Value>) -> Self {
        field.split('.').fold(&mut self.spec, |object, name| &mut object[name]).clone_from(&value.into());
        self
    }

    /// Sets the CPU time that the container requests.
    pub fn cpu(mut self, request: &'static str) -> Self {
        self.cpu = Some(request);
        self
    }

    /// Returns the Deployment. `program` is the path of the sample program.
    pub fn deployment(&self, program: &str) -> Value {
        let env: Vec<Value> = self.env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let mut container = json!({
            "name": "app", "image": "local/hello", "command": [program], "env": env,
            "ports": [{"name": "http1", "containerPort": 8080}],
        });
        if self.protocol == "h2c" {
            container["ports"][0]["name"] = json!("h2c");
        }
        if let Some(readiness) = &self.readiness {
            container["readinessProbe"] = readiness.clone();
        }
        if let Some(cpu) = self.cpu {
            container["resources"] = json!({"requests": {"cpu": cpu}});
        }
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": self.name},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": self.name}},
                "template": {
                    "metadata": {"labels": {"app": self.name}},
                    "spec": {"schedulerName": "zeroscale-local", "terminationGracePeriodSeconds": 5,
                        "containers": [container]},
                },
            },
        })
    }

    /// Returns the Service as a user had it before.
    pub fn service(&self) -> Value {
        let port = if self.protocol == "h2c" { "http2" } else { "http" };
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": self.name, "labels": {"team": "a"}, "annotations": {"note": "mine"}},
            "spec": {"selector": {"app": self.name}, "ports": [{"name": port, "port": 80, "targetPort": 8080}]},
        })
    }

    /// Returns the ZeroScaler.
    pub fn scaler(&self) -> Value {
        let mut spec = self.spec.clone();
        spec["target"] = json!({"kind": "Deployment", "name": self.name});
        if self.protocol == "h2c" {
            spec["ports"] = json!([{"name": "http2", "protocol": "h2c"}]);
        }
        json!({
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
            "metadata": {"name": self.name},
            "spec": spec,
        })
    }
}

/// Variable with the path of a file whose existence lets a pod of the tests' program start.
const GATE_FILE: &str = "E2E_STARTS_WITH";
/// Interval at which the file is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Controls when pods may start: while it is closed, they wait. A test decides, instead of a fixed time that a slow
/// machine may exceed.
pub struct Gate(TempDir);

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> std::io::Result<Self> {
        tempfile::tempdir().map(Self)
    }

    /// Makes the workload's pods wait for the gate.
    pub fn before(&self, workload: Workload) -> Workload {
        workload.env(GATE_FILE, self.file().display())
    }

    /// Lets pods start.
    pub fn open(&self) -> std::io::Result<()> {
        std::fs::write(self.file(), "")
    }

    /// Holds back pods that start from now on. Fails if the gate is closed.
    pub fn close(&self) -> std::io::Result<()> {
        std::fs::remove_file(self.file())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("open")
    }
}

/// Waits in a pod until it may start.
pub fn pass_gate() {
    if let Some(file) = std::env::var_os(GATE_FILE).map(PathBuf::from) {
        while !file.exists() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
