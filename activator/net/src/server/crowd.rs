//! Which clients' connections are ended, when there are too many, nothing has happened on one for long, or its client
//! would be led elsewhere now.
//!
//! Only those on which no exchange runs: a held request, a long poll and a stream are left alone however long they say
//! nothing, and so is a tunnel. Who has been idle for longest goes first. Room is made before there is none, since a
//! connection ends only when its task comes to it (so does nginx, with the same sixteenth).
//!
//! Ending is the gentle way of the protocol first: HTTP/2 gets GOAWAY, HTTP/1 closes, or if a head has begun, with the
//! answer to it. Where nothing runs a while later still, the connection is cut: soon if it never had a request, so that a
//! head that comes byte by byte keeps no place that others need ([`HEAD_GRACE`]); else late, since the end of an answer may
//! be on its way to a slow reader ([`GRACE`]). Who was active just now is left alone, so that connections in use do not
//! end in turn.

use std::time::Duration;

/// The part of the connections that are kept free.
const FREE_PART: usize = 16;

/// Seconds from the gentle end to the other one.
const GRACE: u32 = 60;

/// The same, before the first request.
const HEAD_GRACE: u32 = 5;

/// Seconds without an exchange after which a connection counts as idle.
const IDLE_MIN: u32 = 2;

/// How many looks fall into the time that a connection may be idle.
const LOOKS: u32 = 60;

/// Bounds on the connections of all clients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrowdBounds {
    /// Connections and tunnels; who comes then is turned away.
    pub connections: usize,
    /// How long a connection may be without an exchange, to the second; none: as long as there is room.
    pub idle: Option<Duration>,
}

/// A connection on which nothing runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Idle {
    /// Whose it is.
    pub(super) place: usize,
    /// Since which second.
    pub(super) since: u32,
    /// It has had a request.
    pub(super) was_used: bool,
    /// Its port is one whose clients are to come anew.
    pub(super) is_left: bool,
    /// In which second it was told to finish.
    pub(super) told: Option<u32>,
}

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// To finish, since its place is needed.
    MakeRoom,
    /// To finish, since it was idle for too long.
    TooLong,
    /// To finish, since its client is to come anew.
    Left,
    /// To stop, since it did not finish.
    Cut,
}

impl CrowdBounds {
    /// Whether there is somebody to be told, with so many open. If not, nobody need look at each.
    pub(super) fn asks(&self, second: u32, open: usize) -> bool {
        self.surplus(open) > 0 || self.idle_seconds().is_some_and(|idle| second.is_multiple_of((idle / LOOKS).max(1)))
    }

    /// Who is told what.
    pub(super) fn orders(&self, second: u32, open: usize, mut idle: Vec<Idle>) -> Vec<(usize, Order)> {
        idle.retain(|one| second.saturating_sub(one.since) >= IDLE_MIN);
        idle.sort_unstable_by_key(|one| one.since);
        let on_their_way = idle.iter().filter(|one| one.told.is_some()).count();
        let mut needed = self.surplus(open).saturating_sub(on_their_way);
        let mut orders = Vec::new();
        for Idle { place, since, was_used, is_left, told } in idle {
            let grace = if was_used { GRACE } else { HEAD_GRACE };
            let order = match told {
                Some(told) if second.saturating_sub(told) >= grace => Order::Cut,
                Some(_) => continue,
                None if is_left => Order::Left,
                None if needed > 0 => {
                    needed -= 1;
                    Order::MakeRoom
                }
                None if self.idle_seconds().is_some_and(|idle| second.saturating_sub(since) >= idle) => Order::TooLong,
                None => continue,
            };
            orders.push((place, order));
        }
        orders
    }

    fn surplus(&self, open: usize) -> usize {
        open.saturating_sub(self.connections - self.connections / FREE_PART)
    }

    fn idle_seconds(&self) -> Option<u32> {
        self.idle.map(|idle| u32::try_from(idle.as_secs()).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: CrowdBounds = CrowdBounds { connections: 32, idle: Some(Duration::from_secs(600)) };

    fn idle(rows: &[(u32, Option<u32>)]) -> Vec<Idle> {
        let rows = rows.iter().enumerate();
        let idle = |place, since, told| Idle { place, since, was_used: false, is_left: false, told };
        rows.map(|(place, (since, told))| idle(place, *since, *told)).collect()
    }

    #[test]
    fn the_longest_idle_make_room_before_there_is_none() {
        let waiting = idle(&[(70, None), (50, None), (60, None)]);
        for (open, expected) in [
            (30, &[] as &[usize]),
            (31, &[1]),
            (32, &[1, 2]),
            (40, &[1, 2, 0]), // There are no more.
        ] {
            let told = BOUNDS.orders(100, open, waiting.clone());
            assert_eq!(told, expected.iter().map(|place| (*place, Order::MakeRoom)).collect::<Vec<_>>(), "{open}");
            assert!(BOUNDS.asks(101, open) == (open > 30), "{open}");
        }
        let without = CrowdBounds { idle: None, ..BOUNDS };
        assert!(!without.asks(100, 30) && without.orders(10_000, 30, waiting).is_empty());
    }

    #[test]
    fn who_was_active_just_now_is_left_alone() {
        assert_eq!(BOUNDS.orders(100, 40, idle(&[(99, None), (98, None)])), [(1, Order::MakeRoom)]);
    }

    #[test]
    fn who_was_told_counts_as_gone_and_is_cut_if_it_does_not_go() {
        let waiting = idle(&[(10, Some(98)), (20, Some(95)), (30, None), (40, None)]);
        assert_eq!(BOUNDS.orders(100, 32, waiting.clone()), [(1, Order::Cut)]);
        assert_eq!(BOUNDS.orders(100, 33, waiting.clone()), [(1, Order::Cut), (2, Order::MakeRoom)]);
        let used: Vec<Idle> = waiting.into_iter().map(|one| Idle { was_used: true, ..one }).collect();
        assert_eq!(BOUNDS.orders(100, 32, used.clone()), []);
        assert_eq!(BOUNDS.orders(156, 32, used), [(1, Order::Cut)]);
    }

    #[test]
    fn who_is_to_come_anew_ends_once_idle_also_while_there_is_room() {
        let waiting = idle(&[(98, None), (99, None), (90, Some(95)), (38, Some(40))]);
        let left: Vec<Idle> = waiting.into_iter().map(|one| Idle { is_left: true, was_used: true, ..one }).collect();
        assert_eq!(BOUNDS.orders(100, 4, left), [(3, Order::Cut), (0, Order::Left)]);
    }

    #[test]
    fn what_is_idle_for_too_long_ends_also_while_there_is_room() {
        let waiting = idle(&[(1_000, None), (401, None), (400, None)]);
        assert_eq!(BOUNDS.orders(1_000, 3, waiting), [(2, Order::TooLong)]);
        let looks = (0..1_200).filter(|second| BOUNDS.asks(*second, 3)).count();
        assert_eq!(looks, 120, "no look in each second");
    }
}
