//! Manifests of test workloads.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A Deployment of the sample program, and the PodAutoscaler beside it.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name of both.
    pub name: String,
    /// Replicas to begin with.
    pub replicas: i32,
    /// Environment of the program: its knobs.
    pub env: BTreeMap<String, String>,
    /// Annotations of the PodAutoscaler.
    pub annotations: BTreeMap<String, String>,
    /// Requests that one pod may run at once; 0: no limit.
    pub container_concurrency: i64,
    /// `http1` or `h2c`.
    pub protocol: &'static str,
    /// Readiness probe of the container, as Kubernetes JSON.
    pub readiness: Option<Value>,
    /// Processor time that the container requests, such as `100m`.
    pub cpu: Option<&'static str>,
}

impl Workload {
    /// Asleep, with the shortest stable window, so that tests see it fall asleep again.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            replicas: 0,
            env: BTreeMap::new(),
            annotations: BTreeMap::new(),
            container_concurrency: 0,
            protocol: "http1",
            readiness: None,
            cpu: None,
        }
        .annotate("autoscaling.knative.dev/window", "6s")
    }

    /// Sets the replicas to begin with.
    pub fn replicas(mut self, replicas: i32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets one of the program's knobs.
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.env.insert(name.to_owned(), value.to_string());
        self
    }

    /// Sets an annotation of the PodAutoscaler.
    pub fn annotate(mut self, key: &str, value: impl ToString) -> Self {
        self.annotations.insert(key.to_owned(), value.to_string());
        self
    }

    /// Sets the container concurrency.
    pub fn container_concurrency(mut self, limit: i64) -> Self {
        self.container_concurrency = limit;
        self
    }

    /// Sets the processor time that the container requests.
    pub fn cpu(mut self, request: &'static str) -> Self {
        self.cpu = Some(request);
        self
    }

    /// The Deployment. `program` is the path of the sample program.
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

    /// The PodAutoscaler.
    pub fn pod_autoscaler(&self) -> Value {
        json!({
            "apiVersion": "autoscaling.internal.knative.dev/v1alpha1", "kind": "PodAutoscaler",
            "metadata": {"name": self.name, "annotations": self.annotations},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
                "protocolType": self.protocol,
                "containerConcurrency": self.container_concurrency,
            },
        })
    }
}
