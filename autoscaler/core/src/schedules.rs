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
//! those that a wildcard or a step of minutes or hours means are neither made up nor left out. These are Vixie cron's
//! rules: `croner` has those of wildcards and steps; single times of a day, and up to 24 in a list, are found here.
//! Time zones are those that this program was built with: which machine it runs on changes nothing.
//!
//! # What it costs
//!
//! Whoever may edit one namespace writes expressions, and each pass reads and searches them: none may take long. A
//! schedule is one expression, however many times of a day it lists; these are found here, since `croner` passes a gap
//! second by second. What never comes it looks for up to the year 5000, day by day. So it is asked only about an
//! expression that the calendar has a day for, and no further than [`YEARS`] ahead: every day comes again by then. To
//! look ahead takes another search only of a schedule whose occurrence is over.
//!
//! # Not here
//!
//! The clock: time is an argument. Who looks again when [`InForce::look`] comes.

use common::scaling::Bounds;
use common::time::Timestamp;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, CronDateTime, CronPattern, JobType};
use jiff::Zoned;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use std::cmp::Reverse;
use std::iter::successors;
use std::time::Duration;

/// Changes of single schedules that are looked at for one that changes anything.
const LOOKAHEAD: usize = 64;
/// Times of a day that are found one by one.
const TIMES_MAX: usize = 24;
/// An expression must occur at least once after this: 2000-01-01, before a leap day.
const EPOCH: i64 = 946_684_800;
/// How many years a search looks at after the one in which it begins. A leap day on one day of the week is the rarest
/// that there is: around a century without one it takes as long.
const YEARS: i16 = 40;
/// No change further away than this is looked at for one that changes anything: longer than any search.
const HORIZON: Duration = Duration::from_secs(41 * 366 * 86_400);

/// A schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    /// Its times of a day, in their order; none: `croner` finds them.
    times: Option<Vec<Time>>,
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
        let cron = parse(written.cron)?;
        let zone = TimeZoneDatabase::bundled().get(written.time_zone).map_err(|_| ScheduleError::TimeZone)?;
        let times = times(written.cron, &cron);
        let Written { duration, prewarm, min, max, .. } = written;
        let schedule = Self { cron, times, zone, duration, prewarm, min, max };
        schedule.occurs().then_some(schedule).ok_or(ScheduleError::Never)
    }

    /// Whether it ever occurs. `croner` is not asked for what the calendar has no day for, or the clock no time.
    fn occurs(&self) -> bool {
        let pattern = &self.cron.pattern;
        let has_times = !pattern.minutes.values().is_empty() && !pattern.hours.values().is_empty();
        let has_days = has_times && days(pattern, Date::constant(2000, 1, 1)).next().is_some();
        has_days && self.after(Timestamp::from_secs(EPOCH)).is_some()
    }

    /// Its first occurrence after a time.
    fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let time = jiff::Timestamp::from_second(time.as_secs()).ok()?;
        let from = Zoned::new(time, self.zone.clone());
        let next = match &self.times {
            // A clock shows a later time first no sooner than an earlier one: the first that is found is the first.
            Some(times) => days(&self.cron.pattern, from.date())
                .flat_map(|day| times.iter().map(move |time| day.to_datetime(*time)))
                .filter_map(|shown| first_shown(&self.zone, shown))
                .find(|at| *at > time),
            None => search(&self.cron, &from, YEARS),
        };
        Some(Timestamp::from_secs(next?.as_second()))
    }

    fn bounds(&self, own: Bounds) -> Bounds {
        let min = self.min.unwrap_or(own.min);
        let max = self.max.map_or(own.max, |max| (max != 0).then_some(max));
        Bounds { min, max: max.map(|max| max.max(min)) }
    }
}

fn parse(text: &str) -> Result<Cron, ScheduleError> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(&expression(text)).map_err(|error| ScheduleError::Cron(error.to_string()))
}

/// What an expression means to crontab(5), in one that means the same to `croner`.
fn expression(text: &str) -> String {
    let fields: Vec<&str> = text.split(' ').collect();
    let [minutes, hours, day, month, week_day] = fields[..] else {
        return text.replace("@midnight", "@daily");
    };
    // Of two that are restricted either will do. One that begins with a star is not, whatever its step.
    let is_step = |field: &str| field.starts_with('*') && field != "*";
    let both = (is_step(day) && week_day != "*") || (is_step(week_day) && day != "*");
    let plus = if both && !week_day.starts_with('+') { "+" } else { "" };
    format!("{minutes} {hours} {day} {month} {plus}{week_day}")
}

/// An expression's times of a day, in their order; none: a wildcard or a step means them, or they are many.
fn times(text: &str, cron: &Cron) -> Option<Vec<Time>> {
    let is_list = |field: &str| field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b',' | b'-'));
    let are_named = text.split(' ').take(2).all(is_list) || cron.determine_job_type() == JobType::FixedTime;
    let (minutes, hours) = (cron.pattern.minutes.values(), cron.pattern.hours.values());
    if !are_named || minutes.len() * hours.len() > TIMES_MAX {
        return None;
    }
    let each = hours.iter().flat_map(|hour| minutes.iter().map(move |minute| (*hour, *minute)));
    each.map(|(hour, minute)| Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()).collect()
}

/// The days from one on that an expression means, up to the end of the last of [`YEARS`].
fn days(pattern: &CronPattern, from: Date) -> impl Iterator<Item = Date> {
    looked_at(pattern, from).filter(move |day| is_meant(pattern, *day))
}

/// The days that are looked at for them: all of a month that is meant, and one of another.
fn looked_at(pattern: &CronPattern, from: Date) -> impl Iterator<Item = Date> {
    let after = move |day: &Date| {
        let last = if is_month_meant(pattern, *day) { *day } else { day.last_of_month() };
        last.tomorrow().ok()
    };
    successors(Some(from), after).take_while(move |day| day.year() - from.year() <= YEARS)
}

fn is_meant(pattern: &CronPattern, day: Date) -> bool {
    let midnight = day.to_datetime(Time::midnight());
    let (civil, week_day) = (midnight.to_civil(), midnight.civil_weekday());
    is_month_meant(pattern, day)
        && pattern.day_match(civil.year(), civil.month(), civil.day(), week_day).unwrap_or(false)
}

fn is_month_meant(pattern: &CronPattern, day: Date) -> bool {
    pattern.month_match(u32::from(day.month().unsigned_abs())).unwrap_or(false)
}

/// When a clock shows a time first; one that it skips: when it goes on.
fn first_shown(zone: &TimeZone, shown: DateTime) -> Option<jiff::Timestamp> {
    let found = zone.to_ambiguous_timestamp(shown);
    let earlier = found.earlier().ok()?;
    match found.offset() {
        AmbiguousOffset::Gap { .. } => Some(zone.following(earlier).next()?.timestamp()),
        _ => Some(earlier),
    }
}

/// The first occurrence of an expression after a time, in that year or one of some after it. The calendar must have a
/// day for it: those in a row that are not meant are passed without a look at the year.
fn search(cron: &Cron, from: &Zoned, years: i16) -> Option<jiff::Timestamp> {
    let mut within = cron.clone();
    // A year that its pattern has no place for ends a search.
    within.pattern.years.max = u16::try_from(from.year() + years).ok()?;
    Some(within.find_next_occurrence(from, false).ok()?.timestamp())
}

/// A schedule, and its first occurrence that was not over when it was looked at last.
struct Followed<'a> {
    schedule: &'a Schedule,
    occurs: Option<Timestamp>,
}

impl<'a> Followed<'a> {
    fn new(schedule: &'a Schedule, now: Timestamp) -> Self {
        Self { schedule, occurs: schedule.after(now - schedule.duration) }
    }

    /// Looks at it at a later time; whether that took a search.
    fn go_on(&mut self, now: Timestamp) -> bool {
        let is_over = self.occurs.is_some_and(|occurs| occurs <= now - self.schedule.duration);
        if is_over {
            *self = Self::new(self.schedule, now);
        }
        is_over
    }

    /// Whether it is in force then, and when that may be otherwise.
    fn at(&self, now: Timestamp) -> (bool, Option<Timestamp>) {
        // If any occurrence has it in force, the first that is not over does.
        let Some(occurs) = self.occurs else { return (false, None) };
        let begins = occurs - self.schedule.prewarm;
        match begins <= now {
            true => (true, Some(occurs + self.schedule.duration)),
            false => (false, Some(begins)),
        }
    }
}

/// What is in force at `now`, where `own` is without a schedule.
pub fn in_force(schedules: &[Schedule], own: Bounds, now: Timestamp) -> InForce {
    look_ahead(schedules, own, now).0
}

/// The same, and how many searches it took.
fn look_ahead(schedules: &[Schedule], own: Bounds, now: Timestamp) -> (InForce, usize) {
    let mut all: Vec<_> = schedules.iter().map(|schedule| Followed::new(schedule, now)).collect();
    let mut searches = all.len();
    let (bounds, look) = at(&all, own, now);
    let mut change = look;
    let mut next = None;
    for _ in 0..LOOKAHEAD {
        let Some(time) = change.filter(|time| next.is_none() && *time <= now + HORIZON) else { break };
        searches += all.iter_mut().map(|followed| usize::from(followed.go_on(time))).sum::<usize>();
        let (then, later) = at(&all, own, time);
        if then != bounds {
            next = Some((time, then));
        }
        change = later;
    }
    (InForce { bounds, next, look }, searches)
}

/// What is in force, and when one of them may be otherwise.
fn at(schedules: &[Followed<'_>], own: Bounds, now: Timestamp) -> (Bounds, Option<Timestamp>) {
    let all: Vec<_> = schedules.iter().map(|followed| (followed.schedule, followed.at(now))).collect();
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
        let rows: [(&str, &str, &str, &[&str]); 21] = [
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
            // An hour that is skipped at the end of a Saturday, and half an hour of one on Lord Howe Island.
            ("30 23 * * 6", "America/Nuuk", "2026-03-28T12:00:00Z", &["2026-03-29T01:00:00Z", "2026-04-05T00:30:00Z"]),
            (
                "15 2 * * *",
                "Australia/Lord_Howe",
                "2026-10-03T00:00:00Z",
                &["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"],
            ),
            // Days: a step restricts nothing by itself, two that are restricted are either. 2026-01-03 is a Saturday.
            ("0 8 */2 * 1-5", "UTC", "2026-01-01T12:00:00Z", &["2026-01-05T08:00:00Z", "2026-01-07T08:00:00Z"]),
            ("0 8 */2 * +1-5", "UTC", "2026-01-01T12:00:00Z", &["2026-01-05T08:00:00Z", "2026-01-07T08:00:00Z"]),
            ("0 8 3 * 1", "UTC", "2026-01-01T12:00:00Z", &["2026-01-03T08:00:00Z", "2026-01-05T08:00:00Z"]),
            ("0 8 1-7 * */6", "UTC", "2026-01-01T12:00:00Z", &["2026-01-03T08:00:00Z", "2026-01-04T08:00:00Z"]),
            // Half an hour on Lord Howe Island.
            ("0 9 * * *", "Australia/Lord_Howe", "2026-04-03T23:00:00Z", &["2026-04-04T22:30:00Z"]),
            ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
            ("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]),
            ("*/5 0 29 2 +1", "UTC", "2072-02-29T12:00:00Z", &["2112-02-29T00:00:00Z", "2112-02-29T00:05:00Z"]),
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

    /// Goal: what never comes is refused at the cost of some years' days, and of no search if the calendar has no day
    /// for it. Each row: an expression, and how many days of a year are looked at for it.
    #[test]
    fn what_never_comes_is_refused_after_the_days_of_some_years() {
        let rows = [
            ("0-3 0-5 8-14 * +1#1", 366),
            ("*/7 */5 8-14 * +1#1", 366),
            ("0-3 0-5 31 2,4,6,9,11 *", 157),
            ("* * 30 2 *", 40),
            ("0 0 , * *", 366),
            ("0 0 * , *", 12),
        ];
        let read = |cron: &str, time_zone: &str| {
            Schedule::read(Written { cron, time_zone, duration: hours(1), ..Written::default() }).err()
        };
        for (cron, of_a_year) in rows {
            let pattern = parse(cron).expect(cron).pattern;
            let from = Date::constant(2000, 1, 1);
            assert!(looked_at(&pattern, from).count() <= of_a_year * 41, "{cron}");
            assert_eq!(days(&pattern, from).next(), None, "{cron}");
            assert_eq!(read(cron, "UTC"), Some(ScheduleError::Never), "{cron}");
        }
        // No time of a day, and times of a night that the clock skips each year.
        for cron in ["0 , * * *", ", * * * *", "*/10 2 25-31 3 +0"] {
            assert_eq!(read(cron, "Europe/Berlin"), Some(ScheduleError::Never), "{cron}");
        }
    }

    #[test]
    fn a_search_ends_with_its_years() {
        let leap_day = parse("*/5 0 29 2 *").expect("good");
        let from = Zoned::new(jiff::Timestamp::from_second(EPOCH).expect("a time"), TimeZone::UTC);
        let after =
            search(&leap_day, &from, 0).map(|found| Zoned::new(found, TimeZone::UTC)).expect("in its first year");
        assert_eq!(after.date(), Date::constant(2000, 2, 29));
        let march = Zoned::new(jiff::Timestamp::from_second(EPOCH + 90 * 86_400).expect("a time"), TimeZone::UTC);
        assert_eq!(search(&leap_day, &march, 3), None);
        assert!(search(&leap_day, &march, 4).is_some());
    }

    /// Goal: the largest object, sixteen schedules of as many times as are found one by one, takes one search of each,
    /// and to look ahead takes one more for each occurrence that is over: what is years away is not searched for again.
    #[test]
    fn what_is_in_force_takes_few_searches() {
        let minute = |cron: &str, min: i32| {
            let written = Written {
                cron,
                time_zone: "UTC",
                duration: Duration::from_secs(60),
                min: Some(min),
                ..Written::default()
            };
            Schedule::read(written).expect(cron)
        };
        let noon = time("2026-01-05T12:00:00Z");
        let largest = vec![minute("0-3 0-5 * * *", 5); 16];
        assert!(largest.iter().all(|schedule| schedule.times.as_ref().is_some_and(|times| times.len() == TIMES_MAX)));
        let (found, searches) = look_ahead(&largest, OWN, noon);
        assert_eq!((found.next.map(|(at, _)| shown(at)).as_deref(), searches), (Some("2026-01-06T00:00:00Z"), 16));
        let (_, searches) = look_ahead(&vec![minute("0-3 0-5 * * *", 0); 16], OWN, noon);
        assert!(searches <= 16 * (1 + LOOKAHEAD), "{searches}");

        let mut rare = vec![minute("0-3 0-5 29 2 +1", 0); 15];
        rare.push(minute("* * * * *", 0));
        let (found, searches) = look_ahead(&rare, OWN, noon);
        assert_eq!((found.next, searches), (None, 16 + LOOKAHEAD), "only the one that is over each time");
        rare.pop();
        let (found, searches) = look_ahead(&rare, OWN, noon);
        assert_eq!(found.look.map(shown).as_deref(), Some("2044-02-29T00:00:00Z"));
        assert!(searches <= 15 * (1 + LOOKAHEAD), "{searches}");
        let alone = [minute("0 0 29 2 +1", 0)];
        assert_eq!(look_ahead(&alone, OWN, noon).1, 2, "it ends in 2044, and 2072 is beyond the horizon");
    }
}
