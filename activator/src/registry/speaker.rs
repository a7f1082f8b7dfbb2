//! Tells who speaks first on the connections of a port: its clients, as in HTTP, or its pods, as in MySQL or SMTP.
//!
//! A connection on which nothing comes may be one that a browser opened ahead of use, or that of a client that waits for its
//! server. So a pod is asked, once for each set of pods, by a connection on which nothing is sent. If it sends something,
//! all connections to the port are passed on as bytes from then on. A port on which a pod has answered HTTP is not asked of.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Knowledge of one port.
#[derive(Debug, Default)]
pub(crate) struct Speaker {
    state: Mutex<State>,
    http: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unknown,
    Asking,
    Pod,
    /// With these pods.
    Client(u64),
}

/// Next step of a connection without a byte.
pub(crate) enum Next<'a> {
    /// Be passed on.
    PassOn,
    /// Wait for its client.
    Wait,
    /// Look again later: a pod is being asked.
    Later,
    /// Ask a pod.
    Ask(Asking<'a>),
}

/// A pod is being asked. It is as before if this is dropped.
pub(crate) struct Asking<'a>(&'a Speaker);

impl Speaker {
    /// A pod has answered in HTTP.
    pub(crate) fn note_http(&self) {
        if !self.http.load(Ordering::Relaxed) {
            self.http.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the pods speak first.
    pub(crate) fn is_pod(&self) -> bool {
        *self.state.lock() == State::Pod
    }

    /// Returns whether it is known who does, or was of former pods.
    pub(crate) fn is_known(&self) -> bool {
        self.http.load(Ordering::Relaxed) || matches!(*self.state.lock(), State::Pod | State::Client(_))
    }

    /// Returns what a connection without a byte is to do, `pods` being a number of the present ones.
    pub(crate) fn next(&self, pods: u64) -> Next<'_> {
        let mut state = self.state.lock();
        match *state {
            State::Pod => Next::PassOn,
            _ if self.http.load(Ordering::Relaxed) => Next::Wait,
            State::Client(asked) if asked == pods => Next::Wait,
            State::Asking => Next::Later,
            State::Unknown | State::Client(_) => {
                *state = State::Asking;
                Next::Ask(Asking(self))
            }
        }
    }
}

impl Asking<'_> {
    /// The pod spoke first, or it did not, `pods` being the number of the present ones.
    pub(crate) fn found(self, is_pod: bool, pods: u64) {
        *self.0.state.lock() = if is_pod { State::Pod } else { State::Client(pods) };
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if *state == State::Asking {
            *state = State::Unknown;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each set of pods is asked once, by one connection at a time, and pods that speak first are believed for good.
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
        ask(1).expect("nobody was answered").found(false, 1);
        assert!(matches!(speaker.next(1), Next::Wait) && speaker.is_known());
        ask(2).expect("others").found(true, 2);
        assert!(matches!(speaker.next(3), Next::PassOn) && speaker.is_pod());

        let speaker = Speaker::default();
        speaker.note_http();
        assert!(matches!(speaker.next(1), Next::Wait) && speaker.is_known() && !speaker.is_pod());
    }
}
