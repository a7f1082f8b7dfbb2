//! Go's `time.Duration`: parsing and formatting.

use super::{ParseError, split_sign};
use std::fmt;
use std::time::Duration;

/// Units in nanoseconds. Go accepts both code points for micro.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// One more than the largest positive duration; the magnitude of the smallest negative one.
const MAGNITUDE_MAX: u64 = 1 << 63;

/// Signed duration in nanoseconds, up to about 292 years.
///
/// Annotations may contain negative durations. If a rule cannot use them, [`GoDuration::to_std`] turns them into zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

impl GoDuration {
    /// Zero duration.
    pub const ZERO: Self = Self(0);
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);

    /// Creates a duration from nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Creates a duration from whole seconds, saturating.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(Self::SECOND.0))
    }

    /// Returns nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Returns seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Reports whether the duration has no fraction of a second.
    pub const fn is_whole_seconds(self) -> bool {
        self.0 % Self::SECOND.0 == 0
    }

    /// Converts to an unsigned duration; negative durations become zero.
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

impl From<Duration> for GoDuration {
    /// Converts the duration, saturating at about 292 years.
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// Formats like Go: `1h0m0s`, `1m30s`, `1.5s`, `20ms`, `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => return write!(f, "{nanos}ns"),
            1_000..1_000_000 => return write!(f, "{}\u{b5}s", decimal(nanos, 1_000)),
            1_000_000..1_000_000_000 => return write!(f, "{}ms", decimal(nanos, 1_000_000)),
            _ => {}
        }
        let minutes = nanos / 60_000_000_000;
        if minutes >= 60 {
            write!(f, "{}h", minutes / 60)?;
        }
        if minutes > 0 {
            write!(f, "{}m", minutes % 60)?;
        }
        write!(f, "{}s", decimal(nanos % 60_000_000_000, 1_000_000_000))
    }
}

/// Formats `nanos / unit` with as many decimals as needed.
fn decimal(nanos: u64, unit: u64) -> String {
    let (whole, rest) = (nanos / unit, nanos % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{rest:0width$}").trim_end_matches('0'))
}

/// Parses a duration: an optional sign, then numbers with units in any order; or a bare `0`. Rejects anything else,
/// including numbers without a unit and durations beyond 63 bits of nanoseconds.
pub fn parse_duration(text: &str) -> Result<GoDuration, ParseError> {
    let syntax = || ParseError::new(text, "is not a duration such as 1h30m, 90s or 1.5s");
    let range = || ParseError::new(text, "is a duration out of range");
    let (negative, mut rest) = split_sign(text);
    if rest == "0" {
        return Ok(GoDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(syntax());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let number = Number::take(&mut rest).ok_or_else(syntax)?;
        let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = after;
        if name.is_empty() {
            return Err(ParseError::new(text, "is a duration without a unit (ns, us, ms, s, m, h)"));
        }
        let Some(&(_, unit)) = UNITS.iter().find(|(unit, _)| *unit == name) else {
            let problem = format!("is a duration with the unknown unit {name:?} (ns, us, ms, s, m, h)");
            return Err(ParseError::new(text, problem));
        };
        let sum = number.times(unit).and_then(|nanos| total.checked_add(nanos));
        total = sum.filter(|sum| *sum <= MAGNITUDE_MAX).ok_or_else(range)?;
    }
    let signed = if negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() };
    signed.map(GoDuration).ok_or_else(range)
}

/// Number before a unit: `whole + fraction / scale`.
struct Number {
    whole: u64,
    fraction: u64,
    scale: f64,
}

impl Number {
    /// Takes digits with an optional decimal point from the start of `rest`. Returns `None` if it has no digit.
    fn take(rest: &mut &str) -> Option<Self> {
        let whole_digits = take_digits(rest);
        // The largest number is out of range in any unit.
        let whole = if whole_digits.is_empty() { 0 } else { whole_digits.parse().unwrap_or(u64::MAX) };
        let (mut fraction, mut scale) = (0_u64, 1.0);
        let mut fraction_digits = "";
        if let Some(after) = rest.strip_prefix('.') {
            *rest = after;
            fraction_digits = take_digits(rest);
            for digit in fraction_digits.bytes() {
                // Digits that no longer fit are dropped: they are far below a nanosecond.
                match fraction.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0'))) {
                    Some(longer) if longer <= MAGNITUDE_MAX => (fraction, scale) = (longer, scale * 10.0),
                    _ => break,
                }
            }
        }
        let is_number = !(whole_digits.is_empty() && fraction_digits.is_empty());
        is_number.then_some(Self { whole, fraction, scale })
    }

    /// Returns nanoseconds, rounded down, or `None` if too large.
    fn times(&self, unit: u64) -> Option<u64> {
        let fraction = self.fraction as f64 * (unit as f64 / self.scale);
        self.whole.checked_mul(unit)?.checked_add(fraction as u64).filter(|&nanos| nanos <= MAGNITUDE_MAX)
    }
}

/// Splits off the leading ASCII digits.
fn take_digits<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    *rest = after;
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const S: i64 = 1_000 * MS;

    /// Goal: values equal Go's. Recorded vectors (kind `config`) cover the usual forms.
    #[test]
    fn durations_follow_go() {
        let cases = [
            ("0", 0),
            ("-0", 0),
            ("-5s", -5 * S),
            ("1h2m3.5s", 3_723 * S + 500 * MS),
            ("7000000\u{3bc}s", 7 * S),
            ("1s1h", 3_601 * S),
            ("0.3333333333333333333h", 1_200 * S),
            ("0.1ns", 0),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_duration(text).map(GoDuration::as_nanos), Ok(expected), "{text}");
        }
    }

    #[test]
    fn text_that_go_rejects_is_rejected() {
        let cases: [(&str, &[&str]); 7] = [
            ("is not a duration", &["", "-", "m", ".s", " 60s"]),
            ("without a unit", &["60", "1h30"]),
            ("unknown unit \"d\"", &["1d"]),
            ("unknown unit \"S\"", &["1S"]),
            ("unknown unit \"s \"", &["60s "]),
            ("unknown unit \"m \"", &["1m 30s"]),
            ("out of range", &["9223372036854775808ns", "3000000h", "99999999999999999999s"]),
        ];
        for (problem, texts) in cases {
            for text in texts {
                let error = parse_duration(text).expect_err(text);
                assert!(error.problem.contains(problem), "{error}");
            }
        }
    }

    #[test]
    fn durations_print_as_in_go() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (1_500 * MS, "1.5s"),
            (60 * S, "1m0s"),
            (3_600 * S, "1h0m0s"),
            (3_601 * S + 1, "1h0m1.000000001s"),
            (-90 * S, "-1m30s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(GoDuration::from_nanos(nanos).to_string(), expected);
        }
    }
}
