//! Pods of a target, and their resource requests.
//!
//! # Requests
//!
//! A utilization is a share of the requests of the pods. Every pod that the selector matches needs a request, even a
//! failed or finished one; a pod without a request fails the metric. Containers and sidecars (init containers that
//! restart) count, other init containers do not.
//!
//! - If the pod as a whole requests cpu, memory or huge pages, and the metric is not about one container: the pod's own
//!   request for the measured resource, or else the amount that the scheduler reserves for the containers. That amount
//!   is the sum of all containers, or an init container with the sidecars started before it if that is larger. The
//!   pod's overhead is added. Containers may lack a request in this case.
//! - Otherwise: the sum over all containers, or over those with the metric's container name. Each must have a request.
//!
//! Amounts are in thousandths, rounded up for each container before they are added; sums wrap.

use std::collections::BTreeMap;

use common::labels::Labels;
use common::time::Timestamp;

/// Amounts of resources in thousandths: 250 is 250m of cpu, one byte is 1000.
pub type Resources = BTreeMap<String, i64>;

/// Pod in the target's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Name of the pod.
    pub name: String,
    /// Labels of the pod.
    pub labels: Labels,
    /// `status.phase`.
    pub phase: Phase,
    /// Set if the pod has a deletion timestamp.
    pub deleting: bool,
    /// `status.startTime`.
    pub start_time: Option<Timestamp>,
    /// Ready condition.
    pub ready: Option<Readiness>,
    /// Ordinary containers.
    pub containers: Vec<Container>,
    /// Init containers, in order.
    pub init_containers: Vec<Container>,
    /// Requests of the pod as a whole (`spec.resources.requests`).
    pub requests: Resources,
    /// `spec.overhead`.
    pub overhead: Resources,
}

/// Lifecycle phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Some containers do not run yet.
    Pending,
    /// The containers run.
    Running,
    /// All containers ended successfully.
    Succeeded,
    /// All containers ended, and at least one failed.
    Failed,
    /// The phase is unknown.
    #[default]
    Unknown,
}

/// Ready condition of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Status; `None` is Unknown.
    pub status: Option<bool>,
    /// Time of the last change of the status.
    pub last_transition: Timestamp,
}

/// Container and its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Name of the container.
    pub name: String,
    /// Requests of the container.
    pub requests: Resources,
    /// Set if its restart policy is Always. An init container is a sidecar then.
    pub restarts: bool,
}

impl Pod {
    /// Reports whether the pod runs and is ready. A terminating pod may be ready.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Running && self.ready.is_some_and(|ready| ready.status == Some(true))
    }

    /// Returns the request of `resource`, for one container or for the pod. Fails if a counted container or the pod has
    /// no request, or no container has this name.
    pub fn request(&self, container: Option<&str>, resource: &str) -> Result<i64, String> {
        match container {
            None if self.requests.keys().any(|name| is_pod_resource(name)) => self.pod_request(resource),
            _ => self.containers_request(container, resource),
        }
    }

    fn containers_request(&self, only: Option<&str>, resource: &str) -> Result<i64, String> {
        let sidecars = self.init_containers.iter().filter(|init| init.restarts);
        let mut counted =
            self.containers.iter().chain(sidecars).filter(|c| only.is_none_or(|name| c.name == name)).peekable();
        if let (Some(name), None) = (only, counted.peek()) {
            return Err(format!("container {name} not found in Pod {}", self.name));
        }
        counted.try_fold(0_i64, |sum, container| {
            let (name, pod) = (&container.name, &self.name);
            let missing = || format!("missing request for {resource} in container {name} of Pod {pod}");
            container.requests.get(resource).map(|request| sum.wrapping_add(*request)).ok_or_else(missing)
        })
    }

    fn pod_request(&self, resource: &str) -> Result<i64, String> {
        let own = self.requests.get(resource).copied().filter(|_| is_pod_resource(resource));
        let overhead = self.overhead.get(resource).copied();
        let sum = [own.or_else(|| self.reserved(resource)), overhead].into_iter().flatten().reduce(i64::wrapping_add);
        sum.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {}", self.name))
    }

    /// Returns the amount that the scheduler reserves for the containers, if one of them requests the resource.
    fn reserved(&self, resource: &str) -> Option<i64> {
        let add = |sum: Option<i64>, request: Option<i64>| match (sum, request) {
            (Some(sum), Some(request)) => Some(sum.wrapping_add(request)),
            (sum, request) => sum.or(request),
        };
        let request = |container: &Container| container.requests.get(resource).copied();
        let mut running = self.containers.iter().map(request).fold(None, add);
        let (mut sidecars, mut starting) = (None, None);
        for init in &self.init_containers {
            let request = request(init);
            if init.restarts {
                running = add(running, request);
                sidecars = add(sidecars, request);
                starting = starting.max(sidecars);
            } else {
                starting = starting.max(add(request, sidecars));
            }
        }
        running.max(starting)
    }
}

/// Reports whether a resource can be requested for a pod as a whole.
fn is_pod_resource(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// Returns the request of each pod, by name. Fails with the error of the first pod without a request.
pub fn requests<'a>(
    pods: &[&'a Pod],
    container: Option<&str>,
    resource: &str,
) -> Result<BTreeMap<&'a str, i64>, String> {
    pods.iter().map(|pod| Ok((pod.name.as_str(), pod.request(container, resource)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, cpu: Option<i64>) -> Container {
        let requests = cpu.map(|cpu| ("cpu".to_owned(), cpu)).into_iter().collect();
        Container { name: name.into(), requests, restarts: false }
    }

    /// Goal: sidecars always count. Other init containers count only if the pod as a whole requests some resource: then
    /// each other resource counts with the amount that the scheduler reserves.
    #[test]
    fn a_pod_with_own_requests_counts_the_reserved_amount_of_other_resources() {
        let init = |name, cpu, restarts| Container { restarts, ..container(name, Some(cpu)) };
        let containers = vec![container("c1", Some(100)), container("c2", None)];
        let mut pod = Pod { name: "p".into(), containers, ..Pod::default() };
        pod.requests = [("memory".to_owned(), 1)].into();
        assert_eq!(pod.request(None, "cpu"), Ok(100), "c2 may lack a request");
        pod.init_containers = vec![init("side", 50, true), init("setup", 300, false)];
        let whole = Pod { containers: vec![container("c1", Some(100))], requests: Resources::new(), ..pod.clone() };
        assert_eq!((whole.request(None, "cpu"), whole.request(Some("side"), "cpu")), (Ok(150), Ok(50)));
        assert!(whole.request(Some("setup"), "cpu").is_err(), "only sidecars count");
        assert_eq!(pod.request(None, "cpu"), Ok(350), "setup runs while the sidecar runs");
        pod.overhead = [("cpu".to_owned(), 7)].into();
        assert_eq!(pod.request(None, "cpu"), Ok(357));
        assert_eq!(pod.request(Some("other"), "cpu"), Err("container other not found in Pod p".into()));
        let error = pod.request(None, "hugepages-2Mi");
        assert_eq!(error, Err("missing pod-level request for hugepages-2Mi in Pod p".into()));
        pod.requests = [("example.com/gpu".to_owned(), 1)].into();
        assert!(pod.request(None, "cpu").is_err(), "a resource that pods cannot request changes nothing");
    }
}
