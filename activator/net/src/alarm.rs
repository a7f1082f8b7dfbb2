//! A timer with a precision of some ten microseconds.
//!
//! # Why
//!
//! The runtime's timers have a resolution of a millisecond and round up twice: a timer of 1 ms fires after 1 to 3 ms.
//! That is too coarse for the pauses between probes, which delay held requests. The kernel's timer (timerfd) wakes the
//! thread like any other input.
//!
//! # Edge cases
//!
//! - If nothing is due, the kernel's timer is closed, so that idle revisions hold no descriptor.
//! - If no descriptor is available, the runtime's timer is used.

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

/// A timer that is set to one instant at a time.
#[derive(Debug, Default)]
pub struct Alarm {
    timer: Option<AsyncFd<OwnedFd>>,
}

impl Alarm {
    /// Waits until `due`, never for less; forever if `due` is `None`.
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
        if self.wait_for_kernel_timer(due).await.is_err() {
            self.timer = None;
            tokio::time::sleep_until(due).await;
        }
    }

    async fn wait_for_kernel_timer(&mut self, due: Instant) -> io::Result<()> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            None => {
                let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                self.timer.insert(registered(timerfd_create(TimerfdClockId::Monotonic, flags)?, Interest::READABLE)?)
            }
        };
        // Zero would disarm the timer.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(left).map_err(io::Error::other)?;
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        // This discards an earlier expiration that was not read.
        timerfd_settime(&*timer, TimerfdTimerFlags::empty(), &once)?;
        loop {
            // The readiness may stem from an earlier setting. Only a successful read counts.
            let mut guard = timer.readable().await?;
            if let Ok(read) = guard.try_io(|fd| Ok(rustix::io::read(fd, &mut [0; 8])?)) {
                return read.map(|_| ());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    /// Longer than any timer in this file.
    const LONG: Duration = Duration::from_secs(60);

    async fn assert_fires(alarm: &mut Alarm, due: Instant) {
        tokio::time::timeout(LONG, alarm.until(Some(due))).await.expect("it fires");
        assert!(Instant::now() >= due, "too early");
    }

    #[tokio::test]
    async fn an_alarm_fires_repeatedly_and_never_early() {
        let mut alarm = Alarm::default();
        for pause in [1, 700, 1_000, 1_700, 50].map(Duration::from_micros) {
            assert_fires(&mut alarm, Instant::now() + pause).await;
        }
        assert!(alarm.timer.is_some(), "the kernel's timer was used");
        assert_fires(&mut alarm, Instant::now()).await;
    }

    /// Goal: a cancelled wait does not affect the next one. Method: the first timer fires unread before the second one
    /// is set.
    #[tokio::test]
    async fn a_cancelled_wait_does_not_affect_the_next_one() {
        let mut alarm = Alarm::default();
        // On a busy machine the instant may pass before the wait begins.
        let abandoned = loop {
            let soon = Instant::now() + Duration::from_millis(2);
            if alarm.until(Some(soon)).now_or_never().is_none() {
                break soon;
            }
        };
        assert_fires(&mut Alarm::default(), abandoned + Duration::from_millis(1)).await;
        assert_fires(&mut alarm, Instant::now() + Duration::from_millis(5)).await;
        assert_eq!(alarm.until(Some(Instant::now() + 2 * LONG)).now_or_never(), None);
        assert_fires(&mut alarm, Instant::now() + Duration::from_millis(1)).await;
    }

    #[tokio::test]
    async fn no_descriptor_is_held_if_nothing_is_due() {
        let mut alarm = Alarm::default();
        assert_fires(&mut alarm, Instant::now() + Duration::from_millis(1)).await;
        assert_eq!(alarm.until(None).now_or_never(), None);
        assert!(alarm.timer.is_none());
    }

    /// Goal: if the kernel's timer fails, the runtime's timer replaces it. Method: a descriptor that cannot be set.
    #[tokio::test]
    async fn the_runtimes_timer_replaces_a_failed_kernel_timer() {
        let (no_timer, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut alarm = Alarm { timer: Some(registered(no_timer.into(), Interest::READABLE).expect("registered")) };
        // If the instant passes before the wait begins, no timer is set.
        while alarm.timer.is_some() {
            assert_fires(&mut alarm, Instant::now() + Duration::from_millis(1)).await;
        }
    }
}
