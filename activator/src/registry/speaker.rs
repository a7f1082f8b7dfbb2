//! Detects the side that speaks first on a port: clients, as in HTTP, or pods, as in MySQL or SMTP.
//!
//! A silent connection may be one that a browser opened ahead of use, or one whose client waits for the server. So the
//! activator asks a pod, once for each set of pods, by opening a connection and sending nothing. If the pod sends
//! something, all connections to the port are passed on as bytes from then on. If a pod has responded in HTTP on the
//! port, no pod is asked.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Knowledge about one port.
#[derive(Debug, Default)]
pub(crate) struct Speaker {
    state: Mutex<SpeakerState>,
    http: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SpeakerState {
    #[default]
    Unknown,
    Asking,
    Pod,
    /// Clients speak first, as found with the set of pods that has this hash.
    Client(u64),
}

pub(crate) enum Next<'a> {
    /// Connect it to a pod now.
    PassOn,
    /// Wait for its client.
    Wait,
    /// Check again later, because a pod is being asked.
    Later,
    /// Ask a pod.
    Ask(Asking<'a>),
}

/// Running question to a pod. If it is dropped without a result, the state returns to unknown.
pub(crate) struct Asking<'a>(&'a Speaker);

impl Speaker {
    /// Records that a pod responded in HTTP.
    pub(crate) fn note_http(&self) {
        if !self.http.load(Ordering::Relaxed) {
            self.http.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_pod(&self) -> bool {
        *self.state.lock() == SpeakerState::Pod
    }

    /// Reports whether the side that speaks first is known, for the present or former pods.
    pub(crate) fn is_known(&self) -> bool {
        self.http.load(Ordering::Relaxed) || matches!(*self.state.lock(), SpeakerState::Pod | SpeakerState::Client(_))
    }

    /// Returns the next step of a silent connection. `pods`: hash of the present set of pods.
    pub(crate) fn next(&self, pods: u64) -> Next<'_> {
        let mut state = self.state.lock();
        match *state {
            SpeakerState::Pod => Next::PassOn,
            _ if self.http.load(Ordering::Relaxed) => Next::Wait,
            SpeakerState::Client(asked_pods) if asked_pods == pods => Next::Wait,
            SpeakerState::Asking => Next::Later,
            SpeakerState::Unknown | SpeakerState::Client(_) => {
                *state = SpeakerState::Asking;
                Next::Ask(Asking(self))
            }
        }
    }
}

impl Asking<'_> {
    /// Records whether the pod spoke first. `pods`: hash of the present set of pods.
    pub(crate) fn report(self, is_pod: bool, pods: u64) {
        *self.0.state.lock() = if is_pod { SpeakerState::Pod } else { SpeakerState::Client(pods) };
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if *state == SpeakerState::Asking {
            *state = SpeakerState::Unknown;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each set of pods is asked once, by one connection at a time. Pods that speak first are not asked again.
    #[test]
    fn each_set_of_pods_is_asked_once() {
        let speaker = Speaker::default();
        let ask = |pods| match speaker.next(pods) {
            Next::Ask(asking) => Some(asking),
            _ => None,
        };
        let asking = ask(1).expect("nothing is known");
        assert!(matches!(speaker.next(1), Next::Later) && !speaker.is_known());
        drop(asking);
        ask(1).expect("the first question had no result").report(false, 1);
        assert!(matches!(speaker.next(1), Next::Wait) && speaker.is_known());
        ask(2).expect("another set of pods").report(true, 2);
        assert!(matches!(speaker.next(3), Next::PassOn) && speaker.is_pod());

        let speaker = Speaker::default();
        speaker.note_http();
        assert!(matches!(speaker.next(1), Next::Wait) && speaker.is_known() && !speaker.is_pod());
    }
}
