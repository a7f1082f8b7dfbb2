//! A timer that is on time to some ten microseconds.
//!
//! # Why
//!
//! The runtime keeps its timers by the millisecond and rounds up twice: one of 1 ms fires after 1 to 3. That is too
//! coarse for the pauses between probes, which a held request waits out in the end. The kernel's own timer (timerfd)
//! wakes the thread as any input does.
//!
//! # Odd cases
//!
//! - Nothing is due: the kernel's timer is given back, so that revisions at rest have no descriptor each.
//! - There is none to be had (out of descriptors): the runtime's timer has to do.

use common_runtime::descriptor::registered;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Rings at one instant at a time.
#[derive(Debug, Default)]
pub struct Alarm {
    timer: Option<Timer>,
}

#[derive(Debug)]
struct Timer {
    fd: AsyncFd<OwnedFd>,
    set: Option<Instant>,
}

impl Alarm {
    /// Waits until `due`, never shorter; for ever if nothing is due.
    ///
    /// # Cancel safety
    /// The next call may name another instant.
    pub async fn until(&mut self, due: Option<Instant>) {
        let Some(due) = due else {
            self.timer = None;
            return pending().await;
        };
        if due <= Instant::now() {
            return;
        }
        if self.rung(due).await.is_err() {
            self.timer = None;
            tokio::time::sleep_until(due).await;
        }
    }

    async fn rung(&mut self, due: Instant) -> io::Result<()> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            None => {
                let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                self.timer.insert(Timer::on(timerfd_create(TimerfdClockId::Monotonic, flags)?)?)
            }
        };
        timer.set(due)?;
        loop {
            // What was seen before may be of a time it was set to earlier: only what can be read counts.
            let mut seen = timer.fd.readable().await?;
            if let Ok(read) = seen.try_io(|fd| Ok(rustix::io::read(fd, &mut [0; 8])?)) {
                return read.map(|_| ());
            }
        }
    }
}

impl Timer {
    /// Set to nothing yet.
    fn on(fd: OwnedFd) -> io::Result<Self> {
        let fd = registered(fd, Interest::READABLE)?;
        Ok(Self { fd, set: None })
    }

    /// Has it ring once, from now on at `due`; a ring of another time that was not read is forgotten.
    fn set(&mut self, due: Instant) -> io::Result<()> {
        if self.set == Some(due) {
            return Ok(());
        }
        // Zero would turn it off.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(left).map_err(io::Error::other)?;
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once)?;
        self.set = Some(due);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    /// What no timer of this file takes.
    const LONG: Duration = Duration::from_secs(60);

    async fn rings(alarm: &mut Alarm, due: Instant) {
        tokio::time::timeout(LONG, alarm.until(Some(due))).await.expect("rings");
        assert!(Instant::now() >= due, "too early");
    }

    #[tokio::test]
    async fn it_rings_again_and_again_and_never_too_early() {
        let mut alarm = Alarm::default();
        for pause in [1, 700, 1_000, 1_700, 50].map(Duration::from_micros) {
            rings(&mut alarm, Instant::now() + pause).await;
        }
        assert!(alarm.timer.is_some(), "the kernel's timer was used");
        rings(&mut alarm, Instant::now()).await;
    }

    /// Goal: a wait that was given up leaves nothing behind. Method: the first rings unheard before the second is set.
    #[tokio::test]
    async fn a_wait_that_was_given_up_shortens_and_lengthens_no_other() {
        let mut alarm = Alarm::default();
        // On a busy machine an instant may have passed before it is waited for.
        let unheard = loop {
            let soon = Instant::now() + Duration::from_millis(2);
            if alarm.until(Some(soon)).now_or_never().is_none() {
                break soon;
            }
        };
        rings(&mut Alarm::default(), unheard + Duration::from_millis(1)).await;
        rings(&mut alarm, Instant::now() + Duration::from_millis(5)).await;
        assert_eq!(alarm.until(Some(Instant::now() + 2 * LONG)).now_or_never(), None);
        rings(&mut alarm, Instant::now() + Duration::from_millis(1)).await;
    }

    #[tokio::test]
    async fn with_nothing_due_there_is_no_descriptor() {
        let mut alarm = Alarm::default();
        rings(&mut alarm, Instant::now() + Duration::from_millis(1)).await;
        assert_eq!(alarm.until(None).now_or_never(), None);
        assert!(alarm.timer.is_none());
    }

    /// Goal: where the kernel's timer fails, the runtime's stands in. Method: a descriptor that cannot be set.
    #[tokio::test]
    async fn the_runtimes_timer_stands_in() {
        let (no_timer, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut alarm = Alarm { timer: Some(Timer::on(no_timer.into()).expect("registered")) };
        // One that has passed before it is waited for sets nothing.
        while alarm.timer.is_some() {
            rings(&mut alarm, Instant::now() + Duration::from_millis(1)).await;
        }
    }
}
