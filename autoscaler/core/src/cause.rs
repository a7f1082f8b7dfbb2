//! Reasons why pods do not serve, with a remedy: one value that every surface renders in the same words.
//!
//! | reason | source |
//! |---|---|
//! | `CrashLoop` | a container that ends again and again |
//! | `ProgramMissing` | a command that the image does not contain |
//! | `ImagePull` | an image that cannot be pulled |
//! | `SecretMissing`, `ConfigMapMissing` | an object that the environment refers to |
//! | `VolumeFailed` | a volume that cannot be mounted |
//! | `Unschedulable` | no node accepts the pod |
//! | `ProbeFailing` | a readiness or startup probe that does not pass |
//! | `PortClosed` | a port that refuses connections |
//! | `QuotaExceeded`, `AdmissionDenied`, `PodRefused` | the API server accepts no pod |
//!
//! The texts are public, since clients of a workload may read them too. They name no pod, no address and no namespace.

use common::text::excerpt;
use std::fmt;
use std::time::Duration;

/// Maximum length of external text in a message, in characters.
const EXTERNAL_MAX: usize = 300;
/// Time that a container without a readiness probe must run after its first restart before it counts as serving.
/// Doubles after each further restart.
const SETTLES_IN: Duration = Duration::from_secs(10);
/// Maximum of these times.
const SETTLES_IN_MAX: Duration = Duration::from_secs(300);
/// Length from which a run is not part of a crash loop. Kubernetes resets its back-off after the same time.
const LONG_RUN: Duration = Duration::from_secs(600);
/// Number of restarts from which a container counts as crash looping.
const LOOP_RESTARTS: u32 = 2;

/// Reason why pods do not serve.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cause {
    /// One word for programs.
    pub reason: String,
    /// Description of the problem.
    pub message: String,
    /// Description of the remedy.
    pub remedy: String,
}

impl Cause {
    /// Returns true if the cause may be just a slow start: a program that loads, or a node that is being added.
    pub fn may_be_slow(&self) -> bool {
        matches!(self.reason.as_str(), "ProbeFailing" | "PortClosed" | "Unschedulable")
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.reason, self.message, self.remedy)
    }
}

/// End of one run of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Exit code of the container.
    pub exit_code: i32,
    /// `Error`, `OOMKilled` and the like.
    pub reason: String,
    /// Message of the container runtime.
    pub message: String,
    /// Duration of the run, if known.
    pub ran: Option<Duration>,
}

/// State of a container that is relevant to its failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Name of the container.
    pub name: String,
    /// Reason and message while the container waits.
    pub waiting: Option<(String, String)>,
    /// Time since its start, while the container runs.
    pub running: Option<Duration>,
    /// End of the current run.
    pub ended: Option<Ended>,
    /// End of the previous run.
    pub last: Option<Ended>,
    /// Number of restarts.
    pub restarts: u32,
    /// Readiness as Kubernetes reports it.
    pub ready: bool,
    /// Description of its readiness probe, if it has one.
    pub probe: Option<String>,
}

impl ContainerFacts {
    /// Returns the reason why the container will not serve without a change, or `None` if it serves or is merely
    /// starting.
    pub fn cause(&self) -> Option<Cause> {
        if let Some(known) = self.waiting.as_ref().and_then(|(reason, message)| self.waiting_cause(reason, message)) {
            return Some(known);
        }
        let is_down = !self.ready || self.settles_in().is_some();
        let has_crashed = self.restarts >= LOOP_RESTARTS || (self.restarts > 0 && self.ended.is_some());
        let is_recent = |ended: &Ended| ended.ran.is_none_or(|ran| ran < LONG_RUN);
        let last = self.ended.as_ref().or(self.last.as_ref()).filter(|last| is_recent(last))?;
        (is_down && has_crashed).then(|| self.crash_cause(Some(last)))
    }

    /// Returns the reason why the container waits, or `None` if that is part of a normal start.
    fn waiting_cause(&self, reason: &str, message: &str) -> Option<Cause> {
        let name = &self.name;
        let is = |words: &[&str]| words.iter().any(|word| message.contains(word));
        let (cause_reason, text) = match reason {
            "" | "ContainerCreating" | "PodInitializing" => return None,
            "CrashLoopBackOff" => return Some(self.crash_cause(self.last.as_ref())),
            "ErrImagePull"
            | "ImagePullBackOff"
            | "ErrImageNeverPull"
            | "InvalidImageName"
            | "ImageInspectError"
            | "RegistryUnavailable" => {
                ("ImagePull", format!("the image of container {name:?} cannot be pulled: {}", external(message)))
            }
            "CreateContainerConfigError" if is(&["mounts volume", "volume"]) && !is(&["secret", "configmap"]) => {
                ("VolumeFailed", external(message))
            }
            "CreateContainerConfigError" if is(&["secret", "Secret"]) => ("SecretMissing", self.not_created(message)),
            "CreateContainerConfigError" if is(&["configmap", "ConfigMap"]) => {
                ("ConfigMapMissing", self.not_created(message))
            }
            "CreateContainerError" | "RunContainerError" | "StartError" | "ContainerCannotRun"
                if is_missing(message) =>
            {
                ("ProgramMissing", format!("container {name:?} cannot run its command: {}", external(message)))
            }
            other => (other, format!("container {name:?} does not start: {}", external(message))),
        };
        Some(cause(cause_reason, text))
    }

    /// Returns the message about a container that cannot be created.
    fn not_created(&self, message: &str) -> String {
        format!("container {:?} cannot be created: {}", self.name, external(message))
    }

    fn crash_cause(&self, last: Option<&Ended>) -> Cause {
        let name = &self.name;
        let Some(last) = last else {
            return cause("CrashLoop", format!("container {name:?} ends soon after each start"));
        };
        if is_missing(&last.message) || last.reason == "StartError" {
            let why = external(&last.message);
            return cause("ProgramMissing", format!("container {name:?} cannot run its command: {why}"));
        }
        let how = match last.reason.as_str() {
            "" | "Error" | "Completed" => format!("exit code {}", last.exit_code),
            reason => format!("exit code {} ({reason})", last.exit_code),
        };
        let why = if last.message.is_empty() { String::new() } else { format!(": {}", external(&last.message)) };
        cause("CrashLoop", format!("container {name:?} ends soon after each start, last with {how}{why}"))
    }

    /// Returns the time that the container must still run before it counts as serving. Returns `None` if it already
    /// counts, or Kubernetes reports it as not ready. Kubernetes reports a restarted container without a readiness
    /// probe as ready from its first moment.
    pub fn settles_in(&self) -> Option<Duration> {
        let ran = self.running.filter(|_| self.restarts > 0 && self.probe.is_none() && self.ready)?;
        let is_short = self.last.as_ref().is_none_or(|last| last.ran.is_none_or(|ran| ran < LONG_RUN));
        let doubled = SETTLES_IN.saturating_mul(1 << (self.restarts - 1).min(8)).min(SETTLES_IN_MAX);
        let required = if is_short { doubled } else { SETTLES_IN };
        Some(required.saturating_sub(ran)).filter(|left| !left.is_zero())
    }
}

/// Returns the cause of an unschedulable pod, with the scheduler's message.
pub fn unschedulable(message: &str) -> Cause {
    cause("Unschedulable", format!("the pod fits on no node: {}", external(message)))
}

/// Returns the cause of a pod that the API server rejects, with the API server's message.
pub fn refused(message: &str) -> Cause {
    // `pods "hello-5d8f-x7k2p" is forbidden: exceeded quota: …`
    let why = message.split_once(" is forbidden: ").map_or(message, |(_, why)| why);
    let reason = match () {
        () if message.contains("exceeded quota") || message.contains("failed quota") => "QuotaExceeded",
        () if message.contains("admission webhook") || message.contains("failed calling webhook") => "AdmissionDenied",
        () => "PodRefused",
    };
    cause(reason, format!("the API server accepts no pod: {}", external(why)))
}

/// Returns the cause for a pod that has been starting for a while, from the last warning about it.
pub fn warned(reason: &str, message: &str, starting: Option<&ContainerFacts>) -> Option<Cause> {
    match reason {
        "FailedMount" | "FailedAttachVolume" | "FailedMapVolume" => Some(cause("VolumeFailed", external(message))),
        "FailedCreate" => Some(refused(message.split_once("error: ").map_or(message, |(_, why)| why))),
        "Unhealthy" => starting.map(|container| probe_fails(container, message)),
        _ => None,
    }
}

/// Returns the cause of a container whose probe does not pass, with its last failure.
pub fn probe_fails(container: &ContainerFacts, last: &str) -> Cause {
    let probe = container.probe.as_deref().map(|probe| format!(" ({probe})")).unwrap_or_default();
    let last = last.split_once("probe failed: ").map_or(last, |(_, result)| result);
    let last = if last.is_empty() { String::new() } else { format!(": {}", external(last)) };
    cause("ProbeFailing", format!("the readiness probe of container {:?} does not pass{probe}{last}", container.name))
}

/// Returns the cause of ready pods whose port refuses connections.
pub fn port_closed(port: u16) -> Cause {
    cause("PortClosed", format!("nothing listens on port {port} of the pod"))
}

fn cause(reason: &str, message: String) -> Cause {
    let remedy = match reason {
        "CrashLoop" => "read its last output with kubectl logs --previous",
        "ProgramMissing" => "correct `command` in the pod template, or the image",
        "ImagePull" => "check the name and tag of the image, and imagePullSecrets",
        "SecretMissing" => "create the Secret, or correct the reference in the pod template",
        "ConfigMapMissing" => "create the ConfigMap, or correct the reference in the pod template",
        "VolumeFailed" => "create the object that the volume refers to, or correct the volume in the pod template",
        "Unschedulable" => {
            "wait if a node is being added; otherwise add one, or lower the requests in the pod template"
        }
        "ProbeFailing" => {
            "wait if the program is still starting; otherwise correct the probe, or the response of the program to it"
        }
        "PortClosed" => {
            "wait if the program is still starting; otherwise make it listen on this port on all addresses (0.0.0.0), or correct \
             targetPort of the Service"
        }
        "QuotaExceeded" => "raise the ResourceQuota, or lower the requests in the pod template",
        "AdmissionDenied" => "change the pod template as the webhook requires, or correct the webhook",
        "PodRefused" => "correct the pod template",
        "PortCollision" => "make the program listen on $HOST:$PORT",
        _ => "read the events of the pod with kubectl describe pod",
    };
    Cause { reason: reason.to_owned(), message, remedy: remedy.to_owned() }
}

fn is_missing(message: &str) -> bool {
    let words = ["executable file not found", "no such file or directory", "not found in", "is not an executable file"];
    words.iter().any(|words| message.contains(words))
}

/// Returns external text as one line of bounded length.
fn external(text: &str) -> String {
    excerpt(text.trim_end().trim_end_matches(['.', ';']), EXTERNAL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(reason: &str, message: &str) -> ContainerFacts {
        let waiting = Some((reason.to_owned(), message.to_owned()));
        ContainerFacts { name: "app".into(), waiting, ..ContainerFacts::default() }
    }

    fn ended(exit_code: i32, reason: &str, message: &str, ran: u64) -> Ended {
        let ran = Some(Duration::from_secs(ran));
        Ended { exit_code, reason: reason.into(), message: message.into(), ran }
    }

    fn running(restarts: u32, seconds: u64, ran: u64) -> ContainerFacts {
        ContainerFacts {
            name: "app".into(),
            running: Some(Duration::from_secs(seconds)),
            last: (restarts > 0).then(|| ended(1, "Error", "", ran)),
            restarts,
            ready: true,
            ..ContainerFacts::default()
        }
    }

    /// Goal: each cause is recognized from the messages of Kubernetes and of the node of `local`, and a normal start
    /// has no cause.
    #[test]
    fn a_waiting_container_has_the_cause_that_it_names() {
        let missing = r#"exec: "x": executable file not found in $PATH: unknown"#;
        let not_configured = |message| waiting("CreateContainerConfigError", message);
        let rows = [
            (waiting("ContainerCreating", ""), None),
            (waiting("PodInitializing", ""), None),
            (waiting("CrashLoopBackOff", "back-off 10s restarting failed container=app pod=a_b(c)"), Some("CrashLoop")),
            (waiting("ErrImagePull", "not found"), Some("ImagePull")),
            (waiting("ImagePullBackOff", "Back-off pulling image \"a:b\""), Some("ImagePull")),
            (not_configured("secret \"s\" not found"), Some("SecretMissing")),
            (not_configured("couldn't find key k in ConfigMap ns/c"), Some("ConfigMapMissing")),
            (not_configured("container \"app\" mounts volume \"d\" at /d"), Some("VolumeFailed")),
            (waiting("CreateContainerError", "program \"x\" not found in /bin"), Some("ProgramMissing")),
            (waiting("RunContainerError", missing), Some("ProgramMissing")),
            (waiting("PortCollision", "8080 is taken"), Some("PortCollision")),
        ];
        for (container, expected) in rows {
            let cause = container.cause();
            assert_eq!(cause.as_ref().map(|cause| cause.reason.as_str()), expected, "{container:?}");
            assert!(cause.is_none_or(|cause| !cause.remedy.is_empty() && !cause.to_string().contains("pod=a_b")));
        }
        let back_off = ContainerFacts {
            last: Some(ended(128, "StartError", missing, 0)),
            ..waiting("CrashLoopBackOff", "back-off 10s")
        };
        assert_eq!(back_off.cause().expect("a cause").reason, "ProgramMissing");
    }

    /// Goal: a crash loop has the same cause from its second restart on, whatever the state of its container. A
    /// container that crashed once, or after a long run, has none.
    #[test]
    fn a_crash_loop_is_one_cause_through_all_its_restarts() {
        let rows = [
            (running(0, 0, 0), false, None),
            (running(1, 1, 0), false, Some(9)),
            (running(1, 10, 0), false, None),
            (running(2, 1, 0), true, Some(19)),
            (running(3, 15, 0), true, Some(25)),
            (running(9, 299, 0), true, Some(1)),
            (running(9, 1, 600), false, Some(9)),
            (ContainerFacts { probe: Some("GET /".into()), ..running(2, 1, 0) }, false, None),
            (ContainerFacts { probe: Some("GET /".into()), ready: false, ..running(2, 1, 0) }, true, None),
        ];
        for (container, loops, settles) in rows {
            assert_eq!(container.cause().is_some(), loops, "{container:?}");
            assert_eq!(container.settles_in().map(|left| left.as_secs()), settles, "{container:?}");
        }
        let down = |restarts| ContainerFacts {
            running: None,
            ready: false,
            waiting: Some(("CrashLoopBackOff".into(), String::new())),
            ..running(restarts, 0, 0)
        };
        assert_eq!(down(2).cause(), running(2, 1, 0).cause(), "the same cause while it runs and while it waits");
    }

    #[test]
    fn external_messages_are_reported_without_pod_names() {
        let quota = refused("pods \"hello-5d8f-x7k2p\" is forbidden: exceeded quota: q, used: pods=1, limited: pods=1");
        assert_eq!(quota.reason, "QuotaExceeded");
        assert_eq!(quota.message, "the API server accepts no pod: exceeded quota: q, used: pods=1, limited: pods=1");
        let event = "create Pod hello-0 in StatefulSet hello failed error: pods \"hello-0\" is forbidden: exceeded quota: q, \
                     used: pods=1, limited: pods=1";
        assert_eq!(warned("FailedCreate", event, None).as_ref(), Some(&quota));
        let denied = refused("admission webhook \"w\" denied the request: no");
        assert_eq!(denied.reason, "AdmissionDenied");
        let mount = warned("FailedMount", "MountVolume.SetUp failed for volume \"d\" : secret \"s\" not found", None);
        assert_eq!(mount.map(|cause| cause.reason).as_deref(), Some("VolumeFailed"));
        let container = ContainerFacts { probe: Some("GET :80/ready".into()), ..running(0, 30, 0) };
        let probe =
            warned("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", Some(&container));
        let text = "the readiness probe of container \"app\" does not pass (GET :80/ready): HTTP probe failed with statuscode: 503";
        assert_eq!(probe.map(|cause| cause.message).as_deref(), Some(text));
        assert_eq!(external(&"x ".repeat(1_000)).chars().count(), EXTERNAL_MAX);
    }
}
