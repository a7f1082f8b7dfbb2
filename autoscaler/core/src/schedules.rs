//! Minimum and maximum scale by the clock.
//!
//! A schedule is active from each of its occurrences, or from `prewarm` before it, for `duration`. If several schedules
//! are active, the one with the largest minimum applies; of equal ones, the one with the larger maximum. Values that
//! the schedule omits stay unchanged. A maximum below the minimum is raised to the minimum.
//!
//! # Clock changes
//!
//! Occurrences are wall-clock times in the schedule's time zone; `duration` and `prewarm` are elapsed times. An
//! occurrence that the clock skips happens at the first minute after the gap. One that the clock shows twice happens
//! the first time. Occurrences from a wildcard or a step of minutes or hours are neither added nor skipped. These are
//! the rules of Vixie cron. `croner` implements those of wildcards and steps; single times of a day, and lists of up to
//! 24, are handled here. The time zones are built into this program, so the machine that runs it makes no difference.
//!
//! # Cost
//!
//! Anyone with write access to one namespace can write expressions, and each reconciliation parses and searches them.
//! So no expression may take long. A schedule is one expression, however many times of a day it lists; listed times are
//! found here, since `croner` steps through a gap second by second. For an expression that never occurs, `croner`
//! searches up to the year 5000, day by day. So it is called only for an expression that matches a day of the calendar,
//! and searches no further than [`YEARS`] ahead, since every day recurs by then. Looking ahead takes another search
//! only for a schedule whose occurrence is over.
//!
//! # Not here
//!
//! The clock: time is an argument. Deciding again at the time [`InForce::recheck_at`].

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

/// Maximum number of changes of single schedules to examine for one with an effect.
const LOOKAHEAD: usize = 64;
/// Maximum number of times of a day that are found one by one.
const TIMES_MAX: usize = 24;
/// Time after which an expression must occur at least once: 2000-01-01, before a leap day.
const EPOCH: i64 = 946_684_800;
/// Number of years that a search covers after the one in which it begins. A leap day on one day of the week is the
/// rarest occurrence. It takes this long around a century without a leap day.
const YEARS: i16 = 40;
/// Limit of looking ahead for a change with an effect: longer than any search.
const HORIZON: Duration = Duration::from_secs(41 * 366 * 86_400);

/// Schedule of a minimum and maximum scale.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    /// Times of a day in order; `None` if `croner` finds them.
    times: Option<Vec<Time>>,
    zone: TimeZone,
    duration: Duration,
    prewarm: Duration,
    min: Option<i32>,
    max: Option<i32>,
}

/// Schedule as written by the user.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written<'a> {
    /// Five fields as in crontab(5), or a word such as `@daily`.
    pub cron: &'a str,
    /// Name in the IANA time zone database.
    pub time_zone: &'a str,
    /// Duration of each occurrence.
    pub duration: Duration,
    /// Time by which the schedule becomes active before an occurrence.
    pub prewarm: Duration,
    /// Minimum scale.
    pub min: Option<i32>,
    /// Maximum scale; 0 means unlimited.
    pub max: Option<i32>,
}

/// Reason why a schedule is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The expression is invalid.
    #[error("{0}")]
    Cron(String),
    /// The expression never occurs.
    #[error("there is no such time, in any year")]
    Never,
    /// The time zone is unknown.
    #[error("there is no time zone of this name in the IANA database")]
    TimeZone,
}

/// Bounds in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Minimum and maximum scale.
    pub bounds: Bounds,
    /// Time of the next change and the bounds after it; `None` if no change was found within the limits of the search.
    pub next: Option<(Timestamp, Bounds)>,
    /// Time at which to decide again; `None` means never.
    pub recheck_at: Option<Timestamp>,
}

impl Schedule {
    /// Parses a schedule. Fails if the expression or the time zone is invalid.
    pub fn read(written: Written<'_>) -> Result<Self, ScheduleError> {
        let cron = parse(written.cron)?;
        let zone = TimeZoneDatabase::bundled().get(written.time_zone).map_err(|_| ScheduleError::TimeZone)?;
        let times = times(written.cron, &cron);
        let Written { duration, prewarm, min, max, .. } = written;
        let schedule = Self { cron, times, zone, duration, prewarm, min, max };
        schedule.occurs().then_some(schedule).ok_or(ScheduleError::Never)
    }

    /// Returns true if the schedule ever occurs. Does not call `croner` if no day of the calendar or no time matches.
    fn occurs(&self) -> bool {
        let pattern = &self.cron.pattern;
        let has_times = !pattern.minutes.values().is_empty() && !pattern.hours.values().is_empty();
        let has_days = has_times && days(pattern, Date::constant(2000, 1, 1)).next().is_some();
        has_days && self.next_after(Timestamp::from_secs(EPOCH)).is_some()
    }

    /// Returns the first occurrence after a time.
    fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let time = jiff::Timestamp::from_second(time.as_secs()).ok()?;
        let from = Zoned::new(time, self.zone.clone());
        let next = match &self.times {
            // The clock never shows a later time for the first time before an earlier one, so the first match is the
            // earliest.
            Some(times) => days(&self.cron.pattern, from.date())
                .flat_map(|day| times.iter().map(move |time| day.to_datetime(*time)))
                .filter_map(|civil| first_instant(&self.zone, civil))
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

/// Converts an expression with the meaning of crontab(5) into one with the same meaning in `croner`.
fn expression(text: &str) -> String {
    let fields: Vec<&str> = text.split(' ').collect();
    let [minutes, hours, day, month, week_day] = fields[..] else {
        return text.replace("@midnight", "@daily");
    };
    // If both day fields are restricted, either may match. A field that begins with a star is not restricted, whatever
    // its step.
    let is_step = |field: &str| field.starts_with('*') && field != "*";
    let both = (is_step(day) && week_day != "*") || (is_step(week_day) && day != "*");
    let plus = if both && !week_day.starts_with('+') { "+" } else { "" };
    format!("{minutes} {hours} {day} {month} {plus}{week_day}")
}

/// Returns the times of a day of an expression, in order, or `None` if a wildcard or a step yields them or there are
/// too many.
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

/// Returns the days that match an expression, from a day on up to the end of the last of [`YEARS`].
fn days(pattern: &CronPattern, from: Date) -> impl Iterator<Item = Date> {
    examined_days(pattern, from).filter(move |day| matches_day(pattern, *day))
}

/// Returns the days to examine: all days of a matching month, and one day of any other.
fn examined_days(pattern: &CronPattern, from: Date) -> impl Iterator<Item = Date> {
    let after = move |day: &Date| {
        let last = if matches_month(pattern, *day) { *day } else { day.last_of_month() };
        last.tomorrow().ok()
    };
    successors(Some(from), after).take_while(move |day| day.year() - from.year() <= YEARS)
}

fn matches_day(pattern: &CronPattern, day: Date) -> bool {
    let midnight = day.to_datetime(Time::midnight());
    let (civil, week_day) = (midnight.to_civil(), midnight.civil_weekday());
    matches_month(pattern, day)
        && pattern.day_match(civil.year(), civil.month(), civil.day(), week_day).unwrap_or(false)
}

fn matches_month(pattern: &CronPattern, day: Date) -> bool {
    pattern.month_match(u32::from(day.month().unsigned_abs())).unwrap_or(false)
}

/// Returns the instant at which a clock first shows a time. For a time that it skips, returns the end of the gap.
fn first_instant(zone: &TimeZone, civil: DateTime) -> Option<jiff::Timestamp> {
    let found = zone.to_ambiguous_timestamp(civil);
    let earlier = found.earlier().ok()?;
    match found.offset() {
        AmbiguousOffset::Gap { .. } => Some(zone.following(earlier).next()?.timestamp()),
        _ => Some(earlier),
    }
}

/// Returns the first occurrence of an expression after a time, within that year and some years after it. The calendar
/// must have a matching day, because a series of non-matching days is passed without checking the year.
fn search(cron: &Cron, from: &Zoned, years: i16) -> Option<jiff::Timestamp> {
    let mut within = cron.clone();
    // A year outside the range of the pattern ends the search.
    within.pattern.years.max = u16::try_from(from.year() + years).ok()?;
    Some(within.find_next_occurrence(from, false).ok()?.timestamp())
}

/// Schedule with its first occurrence that is not over at the current time of the search.
struct ScheduleCursor<'a> {
    schedule: &'a Schedule,
    occurs: Option<Timestamp>,
}

impl<'a> ScheduleCursor<'a> {
    fn new(schedule: &'a Schedule, now: Timestamp) -> Self {
        Self { schedule, occurs: schedule.next_after(now - schedule.duration) }
    }

    /// Advances to a later time. Returns true if that took a search.
    fn advance(&mut self, now: Timestamp) -> bool {
        let is_over = self.occurs.is_some_and(|occurs| occurs <= now - self.schedule.duration);
        if is_over {
            *self = Self::new(self.schedule, now);
        }
        is_over
    }

    /// Returns true if the schedule is active, and the time at which that may change.
    fn at(&self, now: Timestamp) -> (bool, Option<Timestamp>) {
        // If any occurrence makes it active, the first one that is not over does.
        let Some(occurs) = self.occurs else { return (false, None) };
        let begins = occurs - self.schedule.prewarm;
        if begins <= now { (true, Some(occurs + self.schedule.duration)) } else { (false, Some(begins)) }
    }
}

/// Returns the bounds at `now`. `own` are the bounds without a schedule.
pub fn in_force(schedules: &[Schedule], own: Bounds, now: Timestamp) -> InForce {
    look_ahead(schedules, own, now).0
}

/// Returns the bounds at `now` and the number of searches.
fn look_ahead(schedules: &[Schedule], own: Bounds, now: Timestamp) -> (InForce, usize) {
    let mut all: Vec<_> = schedules.iter().map(|schedule| ScheduleCursor::new(schedule, now)).collect();
    let mut searches = all.len();
    let (bounds, recheck_at) = at(&all, own, now);
    let mut change = recheck_at;
    let mut next = None;
    for _ in 0..LOOKAHEAD {
        let Some(time) = change.filter(|time| next.is_none() && *time <= now + HORIZON) else { break };
        searches += all.iter_mut().map(|cursor| usize::from(cursor.advance(time))).sum::<usize>();
        let (then, later) = at(&all, own, time);
        if then != bounds {
            next = Some((time, then));
        }
        change = later;
    }
    (InForce { bounds, next, recheck_at }, searches)
}

/// Returns the bounds, and the time at which a schedule may change them.
fn at(schedules: &[ScheduleCursor<'_>], own: Bounds, now: Timestamp) -> (Bounds, Option<Timestamp>) {
    let all: Vec<_> = schedules.iter().map(|cursor| (cursor.schedule, cursor.at(now))).collect();
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

    fn time_text(time: Timestamp) -> String {
        jiff::Timestamp::from_second(time.as_secs()).expect("a time").to_string()
    }

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(hours * 3600)
    }

    fn read(cron: &str, time_zone: &str) -> Result<Schedule, ScheduleError> {
        Schedule::read(Written { cron, time_zone, duration: hours(1), ..Written::default() })
    }

    /// Creates a schedule from `cron`, zone, hours, minutes of prewarm, and min.
    fn schedule(cron: &str, time_zone: &str, duration: u64, prewarm: u64, min: i32) -> Schedule {
        let (duration, prewarm) = (hours(duration), Duration::from_secs(prewarm * 60));
        Schedule::read(Written { cron, time_zone, duration, prewarm, min: Some(min), max: None }).expect(cron)
    }

    /// Goal: occurrences are correct around clock changes and leap days. Rows: expression, zone, start time, and the
    /// occurrences that follow.
    #[test]
    fn occurrences_are_correct_around_clock_changes_and_leap_days() {
        const BERLIN: &str = "Europe/Berlin";
        const LORD_HOWE: &str = "Australia/Lord_Howe";
        let rows: [(&str, &str, &str, &[&str]); 21] = [
            // Summer time begins in Berlin on 2026-03-29 at 02:00 and ends on 2026-10-25 at 03:00.
            ("0 8 * * *", BERLIN, "2026-03-28T12:00", &["2026-03-29T06:00", "2026-03-30T06:00"]),
            ("30 2 * * *", BERLIN, "2026-03-28T12:00", &["2026-03-29T01:00", "2026-03-30T00:30"]),
            ("30 2 * * *", BERLIN, "2026-10-24T12:00", &["2026-10-25T00:30", "2026-10-26T01:30"]),
            ("0 * * * *", BERLIN, "2026-03-29T00:30", &["2026-03-29T01:00", "2026-03-29T02:00"]),
            ("0 * * * *", BERLIN, "2026-10-24T23:30", &["2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T02:00"]),
            // Each time of a list follows the same rules.
            (
                "30 2,14 * * *",
                BERLIN,
                "2026-03-28T15:00",
                &["2026-03-29T01:00", "2026-03-29T12:30", "2026-03-30T00:30"],
            ),
            (
                "0,30 2-3 * * *",
                BERLIN,
                "2026-10-24T12:00",
                &["2026-10-25T00:00", "2026-10-25T00:30", "2026-10-25T02:00", "2026-10-25T02:30"],
            ),
            ("@midnight", "UTC", "2026-01-01T12:00", &["2026-01-02T00:00"]),
            // A skipped hour at the end of a Saturday, and a skipped half hour on Lord Howe Island.
            ("30 23 * * 6", "America/Nuuk", "2026-03-28T12:00", &["2026-03-29T01:00", "2026-04-05T00:30"]),
            ("15 2 * * *", LORD_HOWE, "2026-10-03T00:00", &["2026-10-03T15:30", "2026-10-04T15:15"]),
            // Days: a step alone does not restrict, and of two restricted fields either may match. 2026-01-03 is a
            // Saturday.
            ("0 8 */2 * 1-5", "UTC", "2026-01-01T12:00", &["2026-01-05T08:00", "2026-01-07T08:00"]),
            ("0 8 */2 * +1-5", "UTC", "2026-01-01T12:00", &["2026-01-05T08:00", "2026-01-07T08:00"]),
            ("0 8 3 * 1", "UTC", "2026-01-01T12:00", &["2026-01-03T08:00", "2026-01-05T08:00"]),
            ("0 8 1-7 * */6", "UTC", "2026-01-01T12:00", &["2026-01-03T08:00", "2026-01-04T08:00"]),
            // Half an hour on Lord Howe Island.
            ("0 9 * * *", LORD_HOWE, "2026-04-03T23:00", &["2026-04-04T22:30"]),
            ("0 0 29 2 *", "UTC", "2026-01-01T00:00", &["2028-02-29T00:00", "2032-02-29T00:00"]),
            ("0 0 29 2 *", "UTC", "2096-03-01T00:00", &["2104-02-29T00:00"]),
            ("*/5 0 29 2 +1", "UTC", "2072-02-29T12:00", &["2112-02-29T00:00", "2112-02-29T00:05"]),
            ("0 9 * * 0", "UTC", "2026-01-01T00:00", &["2026-01-04T09:00"]),
            ("0 9 * * MON-FRI", "UTC", "2026-01-02T10:00", &["2026-01-05T09:00"]),
            ("0 9 31 * *", "Asia/Kolkata", "2026-02-01T00:00", &["2026-03-31T03:30", "2026-05-31T03:30"]),
        ];
        for (cron, zone, from, expected) in rows {
            let schedule = schedule(cron, zone, 1, 0, 1);
            let mut from = time(&format!("{from}:00Z"));
            for expected in expected {
                from = schedule.next_after(from).expect(cron);
                assert_eq!(time_text(from), format!("{expected}:00Z"), "{cron} in {zone}");
            }
        }
    }

    /// Goal: a schedule starts and ends correctly, with and without prewarm, and through the night in which a clock
    /// goes back, since the duration is an elapsed time.
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
            assert_eq!((found.bounds.min, time_text(at).as_str(), bounds.min), (min, next, then), "{now}");
        }
        let night = [schedule("0 22 * * *", "Europe/Berlin", 8, 0, 1)];
        let found = in_force(&night, OWN, time("2026-10-24T21:00:00Z"));
        assert_eq!(
            found.next.map(|(at, _)| time_text(at)).as_deref(),
            Some("2026-10-25T04:00:00Z"),
            "at 05:00 local time, not 06:00"
        );
    }

    /// Goal: of overlapping schedules the one with the largest minimum applies, and a change without an effect is not
    /// reported.
    #[test]
    fn of_overlapping_schedules_the_largest_minimum_applies() {
        let day = schedule("0 6 * * *", "UTC", 12, 0, 2);
        let noon = schedule("0 11 * * *", "UTC", 2, 0, 5);
        let all = [day.clone(), noon, schedule("0 12 * * *", "UTC", 4, 0, 1)];
        let rows =
            [("05:00", 0, "06:00", 2), ("07:00", 2, "11:00", 5), ("11:30", 5, "13:00", 2), ("13:30", 2, "18:00", 0)];
        for (now, min, next, then) in rows {
            let found = in_force(&all, OWN, time(&format!("2026-01-05T{now}:00Z")));
            let (at, bounds) = found.next.expect("it changes");
            let next = format!("2026-01-05T{next}:00Z");
            assert_eq!((found.bounds.min, time_text(at), bounds.min), (min, next, then), "{now}");
        }
        let always = [schedule("0 * * * *", "UTC", 2, 0, 2)];
        let found = in_force(&always, OWN, time("2026-01-05T00:30:00Z"));
        assert_eq!((found.bounds.min, found.next), (2, None));
        assert!(found.recheck_at.is_some());
        let unscheduled = InForce { bounds: OWN, next: None, recheck_at: None };
        assert_eq!(in_force(&[], OWN, time("2026-01-05T00:30:00Z")), unscheduled);
    }

    #[test]
    fn omitted_bounds_stay_and_the_maximum_is_at_least_the_minimum() {
        let schedule = |min, max| {
            let every_minute =
                Written { cron: "* * * * *", time_zone: "UTC", duration: hours(1), ..Written::default() };
            Schedule::read(Written { min, max, ..every_minute }).expect("good")
        };
        let bounds = |all: &[Schedule], own| in_force(all, own, time("2026-01-05T00:00:00Z")).bounds;
        for (min, max, expected) in [
            (None, None, Bounds { min: 2, max: Some(9) }),
            (Some(0), None, Bounds { min: 0, max: Some(9) }),
            (Some(12), None, Bounds { min: 12, max: Some(12) }),
            (None, Some(3), Bounds { min: 2, max: Some(3) }),
            (Some(1), Some(0), Bounds { min: 1, max: None }),
        ] {
            assert_eq!(bounds(&[schedule(min, max)], Bounds { min: 2, max: Some(9) }), expected, "{min:?}, {max:?}");
        }
        let (five, unlimited) = (schedule(Some(1), Some(5)), schedule(Some(1), Some(0)));
        for all in [[five.clone(), unlimited.clone()], [unlimited, five]] {
            assert_eq!(bounds(&all, OWN), Bounds { min: 1, max: None }, "of equal minimums the larger maximum");
        }
    }

    #[test]
    fn invalid_schedules_are_rejected_with_a_reason() {
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

    /// Goal: an expression that never occurs is rejected after examining the days of some years, and without a search
    /// if no day of the calendar matches. Rows: expression, and number of days examined per year.
    #[test]
    fn an_expression_that_never_occurs_is_rejected_after_a_bounded_search() {
        let rows = [
            ("0-3 0-5 8-14 * +1#1", 366),
            ("*/7 */5 8-14 * +1#1", 366),
            ("0-3 0-5 31 2,4,6,9,11 *", 157),
            ("* * 30 2 *", 40),
            ("0 0 , * *", 366),
            ("0 0 * , *", 12),
        ];
        for (cron, of_a_year) in rows {
            let pattern = parse(cron).expect(cron).pattern;
            let from = Date::constant(2000, 1, 1);
            assert!(examined_days(&pattern, from).count() <= of_a_year * 41, "{cron}");
            assert_eq!(days(&pattern, from).next(), None, "{cron}");
            assert_eq!(read(cron, "UTC").err(), Some(ScheduleError::Never), "{cron}");
        }
        // No time of a day, and times of a night that the clock skips every year.
        for cron in ["0 , * * *", ", * * * *", "*/10 2 25-31 3 +0"] {
            assert_eq!(read(cron, "Europe/Berlin").err(), Some(ScheduleError::Never), "{cron}");
        }
    }

    #[test]
    fn a_search_ends_after_its_years() {
        let leap_day = parse("*/5 0 29 2 *").expect("good");
        let from = Zoned::new(jiff::Timestamp::from_second(EPOCH).expect("a time"), TimeZone::UTC);
        let after =
            search(&leap_day, &from, 0).map(|found| Zoned::new(found, TimeZone::UTC)).expect("in its first year");
        assert_eq!(after.date(), Date::constant(2000, 2, 29));
        let march = Zoned::new(jiff::Timestamp::from_second(EPOCH + 90 * 86_400).expect("a time"), TimeZone::UTC);
        assert_eq!(search(&leap_day, &march, 3), None);
        assert!(search(&leap_day, &march, 4).is_some());
    }

    /// Goal: the largest object (sixteen schedules with the maximum of listed times) takes one search per schedule.
    /// Looking ahead takes one more for each occurrence that is over: an occurrence years ahead is not searched for
    /// again.
    #[test]
    fn the_bounds_in_force_take_few_searches() {
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
        assert_eq!((found.next.map(|(at, _)| time_text(at)).as_deref(), searches), (Some("2026-01-06T00:00:00Z"), 16));
        let (_, searches) = look_ahead(&vec![minute("0-3 0-5 * * *", 0); 16], OWN, noon);
        assert!(searches <= 16 * (1 + LOOKAHEAD), "{searches}");

        let mut rare = vec![minute("0-3 0-5 29 2 +1", 0); 15];
        rare.push(minute("* * * * *", 0));
        let (found, searches) = look_ahead(&rare, OWN, noon);
        assert_eq!((found.next, searches), (None, 16 + LOOKAHEAD), "only the one that is over each time");
        rare.pop();
        let (found, searches) = look_ahead(&rare, OWN, noon);
        assert_eq!(found.recheck_at.map(time_text).as_deref(), Some("2044-02-29T00:00:00Z"));
        assert!(searches <= 15 * (1 + LOOKAHEAD), "{searches}");
        let alone = [minute("0 0 29 2 +1", 0)];
        assert_eq!(look_ahead(&alone, OWN, noon).1, 2, "it ends in 2044, and 2072 is beyond the horizon");
    }
}
