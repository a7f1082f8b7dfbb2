//! How a built-in resource is printed for people.

use jiff::Timestamp;
use serde_json::Value;

/// How a built-in resource is printed.
#[derive(Debug)]
pub(crate) struct Printer {
    /// Names of the columns, and whether only wide output shows them (1) or all (0).
    pub(crate) columns: &'static [(&'static str, u8)],
    /// The cells of one object.
    pub(crate) row: fn(&Value) -> Vec<Value>,
}

/// How long ago a time was, for people: `5s`, `3m20s`, `2d`.
pub(crate) fn age(time: &str) -> Value {
    match time.parse::<Timestamp>() {
        Err(_) => "<unknown>".into(),
        Ok(time) => human(Timestamp::now().as_second() - time.as_second()).into(),
    }
}

fn human(seconds: i64) -> String {
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        small => format!("{big}{big_unit}{small}{small_unit}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        ..-1 => "<invalid>".into(),
        -1..=0 => "0s".into(),
        1..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if years < 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn ages_have_at_most_two_units() {
        for (seconds, wanted) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (3600, "60m"),
            (4 * 3600 + 60, "4h1m"),
            (30 * 3600, "30h"),
            (3 * 86400, "3d"),
            (100 * 86400, "100d"),
        ] {
            assert_eq!(human(seconds), wanted, "{seconds}");
        }
    }
}
