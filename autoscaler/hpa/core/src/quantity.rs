//! Kubernetes quantities: exact decimal numbers with a suffix, such as `250m`, `1.5Gi` or `2e3`.
//!
//! A quantity is stored in billionths, its finest unit; finer digits are rounded away from zero when parsed. The
//! replica arithmetic uses thousandths ([`Quantity::milli`]), also rounded away from zero. A tolerance is a
//! floating-point number: the canonical mantissa times a power of ten ([`Quantity::approximate`]). The product is not
//! always the nearest floating-point number: 0.57 becomes 0.5700000000000001.
//!
//! Two quantities are equal if their values are equal, whatever their notation.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

/// Number of billionths in one.
const ONE: i128 = 1_000_000_000;
/// Largest whole number of a quantity; larger numbers are capped.
const LARGEST: i128 = i64::MAX as i128;
/// Suffixes of powers of 1000, from the billionth.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Suffixes of powers of 1024, from one.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Notation of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Suffixes `n u m`, none, `k M G T P E`: powers of 1000.
    #[default]
    Decimal,
    /// Suffixes `Ki Mi Gi Ti Pi Ei`: powers of 1024. Decimal below 1024 and for fractions.
    Binary,
}

/// Exact number with its notation.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Error: the text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a quantity: a decimal number with one of the suffixes n u m k M G T P E Ki Mi Gi Ti Pi Ei is expected"
)]
pub struct NotAQuantity(String);

impl Quantity {
    /// Returns thousandths, rounded away from zero and capped to 64 bits.
    pub fn milli(self) -> i64 {
        let (quotient, rest) = (self.nanos / 1_000_000, self.nanos % 1_000_000);
        (quotient + rest.signum()).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// Returns a floating-point number: the canonical mantissa times its power of ten, in that order.
    pub fn approximate(self) -> f64 {
        for (unit, factor) in [(ONE, None), (1_000_000, Some(1e-3)), (1_000, Some(1e-6))] {
            if self.nanos % unit == 0 {
                let mantissa = (self.nanos / unit) as f64;
                return factor.map_or(mantissa, |factor| mantissa * factor);
            }
        }
        self.nanos as f64 * 1e-9
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.format == Format::Binary && self.nanos % ONE == 0 && (self.nanos / ONE).abs() >= 1024 {
            return reduce(f, self.nanos / ONE, 1024, &BINARY);
        }
        reduce(f, self.nanos, 1000, &DECIMAL)
    }
}

/// Writes `value` with the largest suffix that leaves it whole.
fn reduce(f: &mut fmt::Formatter<'_>, mut value: i128, base: i128, suffixes: &[&str]) -> fmt::Result {
    let mut index = 0;
    while value % base == 0 && index + 1 < suffixes.len() {
        value /= base;
        index += 1;
    }
    write!(f, "{value}{}", suffixes[index])
}

impl FromStr for Quantity {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        parse(text).ok_or_else(|| NotAQuantity(text.to_owned()))
    }
}

/// Returns an amount of the API in thousandths. Fails if the text is not a quantity.
pub fn milli(amount: &ApiQuantity) -> Result<i64, NotAQuantity> {
    amount.0.parse().map(Quantity::milli)
}

/// Formats thousandths as an amount of the API.
pub fn to_api(milli: i64, format: Format) -> ApiQuantity {
    ApiQuantity(Quantity { nanos: i128::from(milli) * 1_000_000, format }.to_string())
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, unsigned) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (multiplier, power, format) = parse_suffix(suffix)?;
    // The value is digits * multiplier * 10^power billionths.
    let digits = whole.trim_start_matches('0').to_owned() + fraction;
    let power = power.saturating_add(9).saturating_sub(i32::try_from(fraction.len()).ok()?);
    let nanos = billionths(&digits, multiplier, power);
    let capped = nanos.min(LARGEST * ONE);
    Some(Quantity { nanos: if negative { -capped } else { capped }, format })
}

/// Returns the factor, power of ten and format of a suffix.
fn parse_suffix(suffix: &str) -> Option<(i128, i32, Format)> {
    let position = |suffixes: &[&str]| suffixes.iter().position(|other| *other == suffix);
    if let Some(index) = position(&DECIMAL) {
        return Some((1, 3 * i32::try_from(index).ok()? - 9, Format::Decimal));
    }
    if let Some(index) = position(&BINARY) {
        return Some((1 << (10 * index), 0, Format::Binary));
    }
    Some((1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?, Format::Decimal))
}

/// Returns `digits * multiplier * 10^power`, rounded up, saturating.
fn billionths(digits: &str, multiplier: i128, power: i32) -> i128 {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    // A number of more than 38 digits either exceeds the largest quantity, or its last digits only round up the result:
    // 30 digits are enough for the largest quantity in billionths.
    let (head, rest) = digits.split_at(if digits.len() > 38 { 30 } else { digits.len() });
    let up = rest.bytes().any(|digit| digit != b'0');
    let mantissa = head.parse().unwrap_or(i128::MAX / 2) + i128::from(up);
    let power = power.saturating_add(i32::try_from(rest.len()).unwrap_or(i32::MAX));
    let product = mantissa.saturating_mul(multiplier);
    match (power >= 0, 10_i128.checked_pow(power.unsigned_abs())) {
        (true, Some(tens)) => product.saturating_mul(tens),
        (true, None) => i128::MAX,
        (false, Some(tens)) => product / tens + i128::from(product % tens != 0),
        (false, None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_parsed_to_thousandths_rounded_away_from_zero() {
        for (text, milli) in [
            ("0", 0),
            ("1", 1000),
            ("250m", 250),
            ("100n", 1),
            ("-100n", -1),
            ("12345678n", 13),
            ("0.0001", 1),
            ("1.5", 1500),
            (".5", 500),
            ("+2", 2000),
            ("20480Ki", 20_971_520_000),
            ("1.5Ki", 1_536_000),
            ("2e3", 2_000_000),
            ("2E", i64::MAX),
            ("1e-3", 1),
            ("9223372036854775807", i64::MAX),
            ("9223372036854775807m", i64::MAX),
            ("1e99", i64::MAX),
            ("1e-99", 1),
            ("1e2147483647", i64::MAX),
            ("-1e2147483647", i64::MIN),
            ("1.5e-2147483648", 1),
            ("0e2147483647", 0),
            ("1k", 1_000_000),
            ("1M", 1_000_000_000),
            ("1G", 1_000_000_000_000),
            ("1T", 1_000_000_000_000_000),
            ("1P", 1_000_000_000_000_000_000),
            ("1Ki", 1_000 << 10),
            ("1Mi", 1_000 << 20),
            ("1Gi", 1_000 << 30),
            ("1Ti", 1_000 << 40),
            ("1Pi", 1_000 << 50),
        ] {
            assert_eq!(text.parse::<Quantity>().map(Quantity::milli), Ok(milli), "{text}");
        }
        for (text, same) in [("1E", "1e18"), ("1Ei", "1152921504606846976"), ("1Ki", "1024")] {
            assert_eq!(text.parse::<Quantity>(), same.parse(), "{text}");
        }
        for text in ["", ".", "x", "1x", "1.2.3", "1 ", "--1", "1Kib", "e3", "1e2147483648"] {
            assert_eq!(text.parse::<Quantity>(), Err(NotAQuantity(text.to_owned())));
        }
    }

    #[test]
    fn a_quantity_is_formatted_with_the_largest_suffix_that_leaves_it_whole() {
        for (milli, format, text) in [
            (100, Format::Decimal, "100m"),
            (1, Format::Decimal, "1m"),
            (1000, Format::Decimal, "1"),
            (20_000_000, Format::Decimal, "20k"),
            (-1500, Format::Decimal, "-1500m"),
            (0, Format::Binary, "0"),
            (1000, Format::Binary, "1"),
            (1_000_000, Format::Binary, "1k"),
            (1_024_000, Format::Binary, "1Ki"),
            (134_217_728_000, Format::Binary, "128Mi"),
            (1_234_567_333, Format::Binary, "1234567333m"),
        ] {
            assert_eq!(to_api(milli, format).0, text);
        }
    }

    /// Goal: digits finer than a billionth are rounded away from zero, however many there are.
    #[test]
    fn billionths_are_rounded_away_from_zero() {
        let tenth = |digits: usize, last: char| format!("0.1{}{last}", "0".repeat(digits - 2));
        for (text, formatted) in [
            ("1.5n".to_owned(), "2n"),
            ("-1.5n".to_owned(), "-2n"),
            ("2.0n".to_owned(), "2n"),
            ("25e-10".to_owned(), "3n"),
            (tenth(40, '0'), "100m"),
            (tenth(40, '1'), "100000001n"),
            (tenth(60, '1'), "100000001n"),
            ("8Ei".to_owned(), "9223372036854775807"),
            ("7Ei".to_owned(), "7Ei"),
            ("9E".to_owned(), "9E"),
        ] {
            assert_eq!(text.parse::<Quantity>().map(|q| q.to_string()).as_deref(), Ok(formatted), "{text}");
        }
    }

    #[test]
    fn a_tolerance_is_a_mantissa_times_a_power_of_ten() {
        for (text, value) in [
            ("0.57", 570.0 * 0.001),
            ("0.05", 0.05),
            ("100u", 100.0 * 1e-6),
            ("300n", 300.0 * 1e-9),
            ("2", 2.0),
            ("1500m", 1.5),
        ] {
            let got = text.parse::<Quantity>().map(Quantity::approximate);
            assert_eq!(got.map(f64::to_bits), Ok(f64::to_bits(value)), "{text}");
        }
        assert_eq!("0.57".parse::<Quantity>().map(Quantity::approximate), Ok(0.570_000_000_000_000_1));
    }

    proptest::proptest! {
        /// Goal: any text is parsed or rejected, and a formatted quantity parses to the same value.
        #[test]
        fn a_formatted_quantity_parses_to_the_same_value(text in r"[-+]?[0-9]{0,45}(\.[0-9]{0,45})?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,10})?") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                proptest::prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
            }
        }
    }
}
