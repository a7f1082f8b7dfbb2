//! Where a fallback is, as it was said last.
//!
//! What was said holds for [`KEPT`] before it is asked for again. Where nobody answers then, it holds on: requests fall
//! back when things are bad, and the API server may be among them. Nobody else is given the address then. An answer that
//! there is no such Service ends it at once, since its address may be another's by then.
//!
//! However many requests fall back, what fails is asked for once in each [`PAUSE`].

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// How long addresses are not asked for again, and how long nobody is who has not answered.
const KEPT: Duration = Duration::from_secs(5);
/// The same after a refusal, and where none of the addresses answers, or none is known.
const PAUSE: Duration = Duration::from_secs(1);

/// What is known of a fallback's addresses.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// They are not asked for before.
    again: Option<Instant>,
    /// Those that were said last.
    said: Vec<SocketAddr>,
}

impl Found {
    /// What a request at `now` has to do with; none: they are to be asked for.
    pub(crate) fn kept(&self, now: Instant) -> Option<Vec<SocketAddr>> {
        self.again.is_some_and(|again| now < again).then(|| self.believed())
    }

    /// What was said last, if anything.
    pub(crate) fn believed(&self) -> Vec<SocketAddr> {
        self.said.clone()
    }

    /// Takes in what somebody who was asked has said by `now`.
    pub(crate) fn hear(&mut self, now: Instant, said: io::Result<Vec<SocketAddr>>) {
        let pause = match said {
            Ok(addresses) => {
                self.said = addresses;
                KEPT
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                self.said.clear();
                PAUSE
            }
            // Who waited for an answer has waited long.
            Err(error) if self.said.is_empty() && error.kind() != ErrorKind::TimedOut => PAUSE,
            Err(_) => KEPT,
        };
        self.again = Some(now + pause);
    }

    /// None of them answers: they may be others by now.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.again = self.again.map(|again| again.min(now + PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Vec<SocketAddr> {
        vec!["10.0.0.9:80".parse().expect("an address")]
    }

    fn found(begin: Instant) -> Found {
        let mut found = Found::default();
        assert_eq!(found.kept(begin), None, "nobody was asked");
        found.hear(begin, Ok(addresses()));
        found
    }

    /// Goal: what was said outlives the silence of who knows it.
    #[test]
    fn addresses_hold_while_nobody_answers() {
        let begin = Instant::now();
        let mut found = found(begin);
        let mut now = begin;
        while now < begin + Duration::from_secs(3600) {
            assert_eq!(found.kept(now), Some(addresses()), "{:?}", now - begin);
            now += KEPT;
            assert_eq!(found.kept(now), None, "to be asked for again after {:?}", now - begin);
            found.hear(now, Err(ErrorKind::TimedOut.into()));
        }
    }

    /// Goal: a first question that fails at once is asked again soon.
    #[test]
    fn what_nobody_has_said_yet_is_asked_for_again_soon() {
        let begin = Instant::now();
        for (kind, pause) in [(ErrorKind::Other, PAUSE), (ErrorKind::TimedOut, KEPT)] {
            let mut found = Found::default();
            found.hear(begin, Err(kind.into()));
            let just_before = begin + pause - Duration::from_millis(1);
            assert_eq!((found.kept(just_before), found.kept(begin + pause)), (Some(Vec::new()), None), "{kind}");
        }
    }

    /// Goal: an address is not used any more once somebody who knows has said that there is none.
    #[test]
    fn an_answer_ends_what_was_said_before() {
        let begin = Instant::now();
        for kind in [ErrorKind::NotFound, ErrorKind::ConnectionRefused] {
            let mut found = found(begin);
            let now = begin + KEPT;
            found.hear(now, Err(kind.into()));
            assert_eq!((found.kept(now), found.kept(now + PAUSE)), (Some(Vec::new()), None), "{kind}");
            found.hear(now + PAUSE, Err(ErrorKind::TimedOut.into()));
            assert_eq!(found.kept(now + PAUSE), Some(Vec::new()), "{kind}: it does not come back");
        }
    }

    /// Goal: requests whose fallback does not answer ask for its addresses in time, and not each of them.
    #[test]
    fn addresses_that_do_not_answer_are_asked_for_soon() {
        let begin = Instant::now();
        let mut found = found(begin);
        let later = PAUSE / 2;
        found.failed(begin);
        found.failed(begin + later);
        assert_eq!(found.kept(begin + later), Some(addresses()));
        assert_eq!(found.kept(begin + PAUSE), None, "the second does not put it off");
        assert_eq!(found.believed(), addresses(), "if nobody knows better");
    }
}
