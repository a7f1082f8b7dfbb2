//! Quantities as the API server keeps them: exact, in their shortest form. `0.5` is `500m`, `1024Mi` is `1Gi`.
//!
//! What is finer than a billionth is rounded away from zero.

use std::fmt;

use serde_json::Value;

/// Billionths in one.
const ONE: i128 = 1_000_000_000;
/// From a billionth on, each a thousand times the one before it.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// From one on, each 1024 times the one before it.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// An exact number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quantity {
    nanos: i128,
    binary: bool,
}

impl Quantity {
    /// Reads a text or a bare number. None: it is none, or beyond what fits.
    pub(super) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (sign, text) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let (number, suffix) =
            text.split_at(text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}").parse::<i128>().ok()?; // A second dot is no digit.
        let rank = |suffixes: &[&str]| suffixes.iter().position(|known| *known == suffix);
        let (unit, binary) = match (rank(&DECIMAL), rank(&BINARY)) {
            (Some(rank), _) => (power(1000, rank)?, false),
            (None, Some(rank)) => (power(1024, rank)?.checked_mul(ONE)?, true),
            (None, None) => {
                let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
                (power(10, usize::try_from(exponent.checked_add(9)?).ok()?)?, false)
            }
        };
        let (product, tens) = (digits.checked_mul(unit)?, power(10, fraction.len())?);
        let nanos = product / tens + i128::from(product % tens != 0);
        Some(Self { nanos: sign * nanos, binary })
    }
}

fn power(base: i128, exponent: usize) -> Option<i128> {
    base.checked_pow(u32::try_from(exponent).ok()?)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_binary = self.binary && self.nanos % ONE == 0 && self.nanos.abs() >= 1024 * ONE;
        let (mut value, base, suffixes) =
            if is_binary { (self.nanos / ONE, 1024, &BINARY[..]) } else { (self.nanos, 1000, &DECIMAL[..]) };
        if value == 0 {
            return f.write_str("0");
        }
        let mut rank = 0;
        while value % base == 0 && rank + 1 < suffixes.len() {
            (value, rank) = (value / base, rank + 1);
        }
        write!(f, "{value}{}", suffixes[rank])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_quantity_has_one_shortest_form() {
        for (written, kept) in [
            (json!("0.5"), "500m"),
            (json!("1000m"), "1"),
            (json!(0.05), "50m"),
            (json!(3000), "3k"),
            (json!("1.5Gi"), "1536Mi"),
            (json!("1024Mi"), "1Gi"),
            (json!("512"), "512"),
            (json!("0.5Ki"), "512"),
            (json!("2e3"), "2k"),
            (json!("1E"), "1E"),
            (json!("-0.1"), "-100m"),
            (json!("+.5"), "500m"),
            (json!("0.0000000001"), "1n"),
            (json!("0Ki"), "0"),
        ] {
            assert_eq!(
                Quantity::read(&written).map(|quantity| quantity.to_string()).as_deref(),
                Some(kept),
                "{written}"
            );
        }
        for wrong in ["", ".", "much", "1.2.3", "1 Gi", "1ki", "e3", "1e99", "-"] {
            assert_eq!(Quantity::read(&json!(wrong)), None, "{wrong}");
        }
    }
}
