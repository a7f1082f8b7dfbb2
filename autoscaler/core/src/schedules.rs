//! Least and most scale by the clock.
//!
//! A schedule is in force from each of its occurrences, or `prewarm` before it, for `duration`. Of several that are in force
//! together the one with the largest least scale counts, and of equals the one that allows more. What it does not say stays
//! as it is without it; a most scale below its least gives way to that.
//!
//! # Clocks that change
//!
//! Occurrences are times of a wall clock, in the schedule's time zone; `duration` and `prewarm` are times that pass. An
//! occurrence that a clock skips is at the first minute after the gap, one that it shows twice is the first of both;
//! those that a wildcard or a step of minutes or hours means are neither made up nor left out (Vixie cron's rules, by
//! `croner`, which has them for a single minute and hour: a list of them is read as one expression for each).
//! Time zones are those that this program was built with: which machine it runs on changes nothing.
//!
//! # Not here
//!
//! The clock: time is an argument. Who looks again when [`InForce::look`] comes.

use common::scaling::Bounds;
use common::time::Timestamp;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Zoned;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::cmp::Reverse;
use std::time::Duration;

/// Changes of single schedules that are looked at for one that changes anything.
const LOOKAHEAD: usize = 64;
/// Times of a day that are read one by one.
const TIMES_MAX: usize = 24;
/// An expression must occur at least once after this: 2000-01-01, before a leap day.
const EPOCH: i64 = 946_684_800;

/// A schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Each of its occurrences is one of theirs.
    crons: Vec<Cron>,
    zone: TimeZone,
    duration: Duration,
    prewarm: Duration,
    min: Option<i32>,
    max: Option<i32>,
}

/// What a schedule says, as it is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written<'a> {
    /// Five fields, as crontab(5) has them, or a word such as `@daily`.
    pub cron: &'a str,
    /// A name of the IANA database.
    pub time_zone: &'a str,
    /// How long it is in force.
    pub duration: Duration,
    /// How long before an occurrence that begins.
    pub prewarm: Duration,
    /// Least scale.
    pub min: Option<i32>,
    /// Most scale; 0: unlimited.
    pub max: Option<i32>,
}

/// Why there is no such schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The expression cannot be read.
    #[error("{0}")]
    Cron(String),
    /// It never occurs.
    #[error("there is no such time, in any year")]
    Never,
    /// The time zone is not known.
    #[error("there is no time zone of this name in the IANA database")]
    TimeZone,
}

/// What is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Least and most scale.
    pub bounds: Bounds,
    /// When these change next, and to what; none: not that anybody could see it from here.
    pub next: Option<(Timestamp, Bounds)>,
    /// When to look again; none: never.
    pub look: Option<Timestamp>,
}

impl Schedule {
    /// Reads one.
    ///
    /// # Errors
    /// Expression or time zone are none.
    pub fn read(written: Written<'_>) -> Result<Self, ScheduleError> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let parse = |text: &str| parser.parse(text).map_err(|error| ScheduleError::Cron(error.to_string()));
        let crons = expressions(written.cron).iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
        let zone = TimeZoneDatabase::bundled().get(written.time_zone).map_err(|_| ScheduleError::TimeZone)?;
        let Written { duration, prewarm, min, max, .. } = written;
        let schedule = Self { crons, zone, duration, prewarm, min, max };
        schedule.after(Timestamp::from_secs(EPOCH)).is_some().then_some(schedule).ok_or(ScheduleError::Never)
    }

    /// Its first occurrence after a time.
    fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let time = jiff::Timestamp::from_second(time.as_secs()).ok()?;
        let from = Zoned::new(time, self.zone.clone());
        let next = self.crons.iter().filter_map(|cron| cron.find_next_occurrence(&from, false).ok()).min()?;
        Some(Timestamp::from_secs(next.timestamp().as_second()))
    }

    /// Whether it is in force at `now`, and when that may be otherwise.
    fn at(&self, now: Timestamp) -> (bool, Option<Timestamp>) {
        // If any occurrence has it in force, the first that is not over does.
        let Some(occurs) = self.after(now - self.duration) else { return (false, None) };
        let begins = occurs - self.prewarm;
        match begins <= now {
            true => (true, Some(occurs + self.duration)),
            false => (false, Some(begins)),
        }
    }

    fn bounds(&self, own: Bounds) -> Bounds {
        let min = self.min.unwrap_or(own.min);
        let max = self.max.map_or(own.max, |max| (max != 0).then_some(max));
        Bounds { min, max: max.map(|max| max.max(min)) }
    }
}

/// What an expression means to crontab(5), in expressions that mean the same to `croner`.
fn expressions(text: &str) -> Vec<String> {
    let fields: Vec<&str> = text.split(' ').collect();
    let [minutes, hours, day, month, week_day] = fields[..] else {
        return vec![text.replace("@midnight", "@daily")];
    };
    // Of two that are restricted either will do. One that begins with a star is not, whatever its step.
    let is_step = |field: &str| field.starts_with('*') && field != "*";
    let both = (is_step(day) && week_day != "*") || (is_step(week_day) && day != "*");
    let plus = if both && !week_day.starts_with('+') { "+" } else { "" };
    let rest = format!("{day} {month} {plus}{week_day}");
    let times = match (numbers(minutes), numbers(hours)) {
        (Some(minutes), Some(hours)) if minutes.len() * hours.len() <= TIMES_MAX => (minutes, hours),
        _ => return vec![format!("{minutes} {hours} {rest}")],
    };
    let (minutes, hours) = times;
    let each = |hour: u32| minutes.iter().map(move |minute| (*minute, hour));
    hours.into_iter().flat_map(each).map(|(minute, hour)| format!("{minute} {hour} {rest}")).collect()
}

/// The numbers of a list of numbers and ranges; none: it is more than that, or makes no sense.
fn numbers(field: &str) -> Option<Vec<u32>> {
    let number = |text: &str| {
        let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        digits?.parse::<u32>().ok().filter(|number| *number < 60)
    };
    let items = field.split(',').map(|item| {
        let (from, to) = item.split_once('-').unwrap_or((item, item));
        Some(number(from)?..=number(to)?).filter(|range| !range.is_empty())
    });
    Some(items.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
}

/// What is in force at `now`, where `own` is without a schedule.
pub fn in_force(schedules: &[Schedule], own: Bounds, now: Timestamp) -> InForce {
    let (bounds, look) = at(schedules, own, now);
    let mut change = look;
    let mut next = None;
    for _ in 0..LOOKAHEAD {
        let Some(time) = change.filter(|_| next.is_none()) else { break };
        let (then, later) = at(schedules, own, time);
        if then != bounds {
            next = Some((time, then));
        }
        change = later;
    }
    InForce { bounds, next, look }
}

/// What is in force, and when one of them may be otherwise.
fn at(schedules: &[Schedule], own: Bounds, now: Timestamp) -> (Bounds, Option<Timestamp>) {
    let all: Vec<_> = schedules.iter().map(|schedule| (schedule, schedule.at(now))).collect();
    let active = all.iter().filter(|(_, (is_active, _))| *is_active).map(|(schedule, _)| schedule.bounds(own));
    let bounds = active.max_by_key(|bounds| (bounds.min, Reverse(bounds.max.is_some()), bounds.max));
    (bounds.unwrap_or(own), all.iter().filter_map(|(_, (_, change))| *change).min())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Bounds = Bounds { min: 0, max: Some(9) };

    fn time(text: &str) -> Timestamp {
        Timestamp::from_secs(text.parse::<jiff::Timestamp>().expect(text).as_second())
    }

    fn shown(time: Timestamp) -> String {
        jiff::Timestamp::from_second(time.as_secs()).expect("a time").to_string()
    }

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(hours * 3600)
    }

    /// `cron`, zone, hours, minutes of prewarm, min.
    fn schedule(cron: &str, time_zone: &str, duration: u64, prewarm: u64, min: i32) -> Schedule {
        let (duration, prewarm) = (hours(duration), Duration::from_secs(prewarm * 60));
        Schedule::read(Written { cron, time_zone, duration, prewarm, min: Some(min), max: None }).expect(cron)
    }

    /// Goal: where clocks change, and where a year has another length, occurrences are where people expect them. Each row:
    /// expression, zone, from when, and the occurrences that follow.
    #[test]
    fn leap_days_and_clocks_that_change_are_right() {
        let rows: [(&str, &str, &str, &[&str]); 18] = [
            // Summer time begins in Berlin on 2026-03-29 at 02:00 and ends on 2026-10-25 at 03:00.
            ("0 8 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", &["2026-03-29T06:00:00Z", "2026-03-30T06:00:00Z"]),
            ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
            ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
            ("0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", &["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"]),
            (
                "0 * * * *",
                "Europe/Berlin",
                "2026-10-24T23:30:00Z",
                &["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"],
            ),
            // Lists are as one of each.
            (
                "30 2,14 * * *",
                "Europe/Berlin",
                "2026-03-28T15:00:00Z",
                &["2026-03-29T01:00:00Z", "2026-03-29T12:30:00Z", "2026-03-30T00:30:00Z"],
            ),
            (
                "0,30 2-3 * * *",
                "Europe/Berlin",
                "2026-10-24T12:00:00Z",
                &["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z", "2026-10-25T02:30:00Z"],
            ),
            ("@midnight", "UTC", "2026-01-01T12:00:00Z", &["2026-01-02T00:00:00Z"]),
            // Days: a step restricts nothing by itself, two that are restricted are either. 2026-01-03 is a Saturday.
            ("0 8 */2 * 1-5", "UTC", "2026-01-01T12:00:00Z", &["2026-01-05T08:00:00Z", "2026-01-07T08:00:00Z"]),
            ("0 8 */2 * +1-5", "UTC", "2026-01-01T12:00:00Z", &["2026-01-05T08:00:00Z", "2026-01-07T08:00:00Z"]),
            ("0 8 3 * 1", "UTC", "2026-01-01T12:00:00Z", &["2026-01-03T08:00:00Z", "2026-01-05T08:00:00Z"]),
            ("0 8 1-7 * */6", "UTC", "2026-01-01T12:00:00Z", &["2026-01-03T08:00:00Z", "2026-01-04T08:00:00Z"]),
            // Half an hour on Lord Howe Island.
            ("0 9 * * *", "Australia/Lord_Howe", "2026-04-03T23:00:00Z", &["2026-04-04T22:30:00Z"]),
            ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
            ("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]),
            ("0 9 * * 0", "UTC", "2026-01-01T00:00:00Z", &["2026-01-04T09:00:00Z"]),
            ("0 9 * * MON-FRI", "UTC", "2026-01-02T10:00:00Z", &["2026-01-05T09:00:00Z"]),
            ("0 9 31 * *", "Asia/Kolkata", "2026-02-01T00:00:00Z", &["2026-03-31T03:30:00Z", "2026-05-31T03:30:00Z"]),
        ];
        for (cron, zone, from, expected) in rows {
            let schedule = schedule(cron, zone, 1, 0, 1);
            let mut from = time(from);
            for expected in expected {
                from = schedule.after(from).expect(cron);
                assert_eq!(shown(from), *expected, "{cron} in {zone}");
            }
        }
    }

    /// Goal: both ends of what is in force, with and without prewarm, and through the night in which a clock goes back: the
    /// duration is one that passes.
    #[test]
    fn a_schedule_is_in_force_from_its_prewarm_to_its_end() {
        let work = [schedule("0 8 * * 1-5", "Europe/Berlin", 10, 15, 3)];
        let rows = [
            ("2026-01-05T06:44:59Z", 0, "2026-01-05T06:45:00Z", 3),
            ("2026-01-05T06:45:00Z", 3, "2026-01-05T17:00:00Z", 0),
            ("2026-01-05T16:59:59Z", 3, "2026-01-05T17:00:00Z", 0),
            ("2026-01-05T17:00:00Z", 0, "2026-01-06T06:45:00Z", 3),
            ("2026-01-09T18:00:00Z", 0, "2026-01-12T06:45:00Z", 3),
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T06:45:00Z", 3),
        ];
        for (now, min, next, then) in rows {
            let found = in_force(&work, OWN, time(now));
            let (at, bounds) = found.next.expect("it changes");
            assert_eq!((found.bounds.min, shown(at).as_str(), bounds.min), (min, next, then), "{now}");
        }
        let night = [schedule("0 22 * * *", "Europe/Berlin", 8, 0, 1)];
        let found = in_force(&night, OWN, time("2026-10-24T21:00:00Z"));
        assert_eq!(found.next.map(|(at, _)| shown(at)).as_deref(), Some("2026-10-25T04:00:00Z"), "05:00, not 06:00");
    }

    /// Goal: of those that overlap the largest least scale counts; a change that changes nothing is none.
    #[test]
    fn of_schedules_that_overlap_the_one_with_more_counts() {
        let day = schedule("0 6 * * *", "UTC", 12, 0, 2);
        let noon = schedule("0 11 * * *", "UTC", 2, 0, 5);
        let all = [day.clone(), noon, schedule("0 12 * * *", "UTC", 4, 0, 1)];
        let rows =
            [("05:00", 0, "06:00", 2), ("07:00", 2, "11:00", 5), ("11:30", 5, "13:00", 2), ("13:30", 2, "18:00", 0)];
        for (now, min, next, then) in rows {
            let found = in_force(&all, OWN, time(&format!("2026-01-05T{now}:00Z")));
            let (at, bounds) = found.next.expect("it changes");
            let next = format!("2026-01-05T{next}:00Z");
            assert_eq!((found.bounds.min, shown(at), bounds.min), (min, next, then), "{now}");
        }
        let always = [schedule("0 * * * *", "UTC", 2, 0, 2)];
        let found = in_force(&always, OWN, time("2026-01-05T00:30:00Z"));
        assert_eq!((found.bounds.min, found.next), (2, None));
        assert!(found.look.is_some());
        assert_eq!(in_force(&[], OWN, time("2026-01-05T00:30:00Z")), InForce { bounds: OWN, next: None, look: None });
    }

    #[test]
    fn what_a_schedule_does_not_say_stays_and_its_most_is_not_below_its_least() {
        let with = |min, max| {
            let written =
                Written { cron: "* * * * *", time_zone: "UTC", duration: hours(1), min, max, ..Written::default() };
            in_force(
                &[Schedule::read(written).expect("good")],
                Bounds { min: 2, max: Some(9) },
                time("2026-01-05T00:00:00Z"),
            )
            .bounds
        };
        assert_eq!(with(None, None), Bounds { min: 2, max: Some(9) });
        assert_eq!(with(Some(0), None), Bounds { min: 0, max: Some(9) });
        assert_eq!(with(Some(12), None), Bounds { min: 12, max: Some(12) });
        assert_eq!(with(None, Some(3)), Bounds { min: 2, max: Some(3) });
        assert_eq!(with(Some(1), Some(0)), Bounds { min: 1, max: None });
        let day = |max| {
            Schedule::read(Written {
                cron: "* * * * *",
                time_zone: "UTC",
                duration: hours(1),
                min: Some(1),
                max,
                ..Written::default()
            })
            .expect("good")
        };
        for all in [[day(Some(5)), day(Some(0))], [day(Some(0)), day(Some(5))]] {
            let found = in_force(&all, OWN, time("2026-01-05T00:00:00Z"));
            assert_eq!(found.bounds, Bounds { min: 1, max: None }, "of equals the one that allows more");
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_a_word() {
        let read = |cron: &str, time_zone: &str| {
            Schedule::read(Written { cron, time_zone, duration: hours(1), ..Written::default() })
        };
        for cron in [
            "",
            "* * * *",
            "0 0 0 * * *",
            "0 0 1 1 * 1970",
            "61 * * * *",
            "* * * * FOO",
            "* * 32 * *",
            "0,61 0 * * *",
            "0 5,25 * * *",
            "+5 0 * * *",
            "30-10 0 * * *",
            "0 5-3,7 * * *",
            "- 0 * * *",
        ] {
            assert!(matches!(read(cron, "UTC"), Err(ScheduleError::Cron(_))), "{cron}");
        }
        for cron in ["0 0 30 2 *", "0 0 31 4 *"] {
            assert_eq!(read(cron, "UTC").err(), Some(ScheduleError::Never), "{cron}");
        }
        assert_eq!(read("* * * * *", "Europe/Atlantis").err(), Some(ScheduleError::TimeZone));
        for (cron, zone) in [("@daily", "UTC"), ("*/5 * * * *", "Etc/UTC"), ("0 0 L * *", "America/New_York")] {
            assert!(read(cron, zone).is_ok(), "{cron}");
        }
    }
}
