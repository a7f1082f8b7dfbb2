//! Go's `strconv.ParseFloat` for 64 bits.
//!
//! Accepts decimals with an optional exponent, hexadecimals with a mandatory binary exponent, and `Inf`, `Infinity` and
//! `NaN` in any case (only the first two take a sign). Underscores may separate digits. A number that rounds to
//! infinity is out of range; one that rounds to zero is zero.
//!
//! Hexadecimal is supported because upstream accepts `max-scale-up-rate: 0x1p4`, and a ConfigMap with one rejected
//! value takes no effect at all. At most 16 hexadecimal digits and an exponent of 64 bits are accepted; upstream
//! accepts any number of digits.

use super::{ParseError, split_sign};

/// Limit of binary exponents: beyond it any significand of 64 bits becomes infinite or zero.
const EXPONENT_MAX: i64 = 2200;

/// Parses a float. Rejects text that is not a number, and numbers too large for 64 bits.
pub fn parse_float(text: &str) -> Result<f64, ParseError> {
    let syntax = || ParseError::new(text, "is not a number");
    let (negative, magnitude) = split_sign(text);
    let sign = if negative { -1.0 } else { 1.0 };
    if magnitude.eq_ignore_ascii_case("inf") || magnitude.eq_ignore_ascii_case("infinity") {
        return Ok(sign * f64::INFINITY);
    }
    if text.eq_ignore_ascii_case("nan") {
        return Ok(f64::NAN);
    }
    let hex = magnitude.strip_prefix("0x").or_else(|| magnitude.strip_prefix("0X"));
    if !underscores_separate_digits(hex.unwrap_or(magnitude), hex.is_some()) {
        return Err(syntax());
    }
    let value = match hex {
        Some(digits) => parse_hex(digits).ok_or_else(syntax)?,
        None => parse_decimal(magnitude).ok_or_else(syntax)?,
    };
    if value.is_infinite() {
        return Err(ParseError::new(text, "is a number out of range"));
    }
    Ok(sign * value)
}

/// Reports whether every underscore has a digit (or the prefix `0x`) before it and a digit after it.
fn underscores_separate_digits(text: &str, hex: bool) -> bool {
    let mut after_digit = hex;
    let mut pending = false;
    for byte in text.bytes() {
        let digit = byte.is_ascii_digit() || (hex && byte.is_ascii_hexdigit());
        if (pending && !digit) || (byte == b'_' && !after_digit) {
            return false;
        }
        pending = byte == b'_';
        after_digit = digit;
    }
    !pending
}

/// Parses an unsigned decimal: digits with at most one point, at least one digit, then an optional exponent.
fn parse_decimal(text: &str) -> Option<f64> {
    let plain = text.replace('_', "");
    // Without this check Rust would also accept words such as `nan`, and a second sign.
    let is_number = plain.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    if is_number && !plain.starts_with(['+', '-']) { plain.parse().ok() } else { None }
}

/// Parses the text after `0x`: hexadecimal digits with at most one point, then `p` and a power of two.
fn parse_hex(text: &str) -> Option<f64> {
    let (significand, exponent) = text.split_once(['p', 'P'])?;
    let significand = significand.replace('_', "");
    let (whole, fraction) = significand.split_once('.').unwrap_or((&significand, ""));
    let digits = [whole, fraction].concat();
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None; // Checked before the conversion, which would accept a sign.
    }
    let significand = u64::from_str_radix(&digits, 16).ok()?;
    let exponent: i64 = exponent.replace('_', "").parse().ok()?;
    let exponent = exponent.saturating_sub(4 * i64::try_from(fraction.len()).ok()?);
    let exponent = exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX) as i32;
    if significand == 0 {
        return Some(0.0);
    }
    // Scale in two steps, because neither the power nor its inverse need be representable as a float.
    Some(significand as f64 * 2_f64.powi(exponent / 2) * 2_f64.powi(exponent - exponent / 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Goal: values equal Go's, including numbers that round half to even and the edges of the range. Recorded vectors
    /// (kind `config`) cover the usual forms.
    #[test]
    fn numbers_follow_go() {
        let cases = [
            ("0", 0.0),
            ("1.", 1.0),
            (".5", 0.5),
            ("-0.5", -0.5),
            ("1_23.50_0_0e+1_2", 1.235e14),
            ("0X1P-1", 0.5),
            ("0x_1_2.3_4_5p+1_2", 74565.0),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1p-1074", 5e-324),
            ("0x1p-1075", 0.0),
            ("0x1.8p-1075", 5e-324),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000081p0", 1.000_000_000_000_000_2),
            ("0x1.00000000000018p0", 1.000_000_000_000_000_4),
            ("0x0.00000000000000001p64", 0.062_5),
            ("1e-400", 0.0),
            ("0x0p999999999999999999", 0.0),
            ("Inf", f64::INFINITY),
            ("-infinity", f64::NEG_INFINITY),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_float(text), Ok(expected), "{text}");
        }
        assert!(parse_float("NaN").is_ok_and(f64::is_nan));
    }

    #[test]
    fn text_that_go_rejects_is_rejected() {
        let short = [
            "", "+", ".", "e3", "1e", "1e+", " 1", "1 ", "1,5", "x", "100}", "0x1", "0x", "0xp1", "0x.p1", "-nan",
            "infinit", "_1", "1_", "1__2", "1_.5", "1._5", "1e_2", "0x1p1_", "1.2.3", "0x+1p0", "é",
        ];
        let seventeen_digits = "0x10000000000000000p0";
        for text in short.into_iter().chain(["0x1.2.3p0", seventeen_digits]) {
            assert!(parse_float(text).is_err_and(|error| !error.problem.ends_with("out of range")), "{text}");
        }
        for text in ["1e400", "-1e400", "0x1p1024", "0x1.fffffffffffff8p1023", "0x1p999999999999999999"] {
            assert!(parse_float(text).is_err_and(|error| error.problem.ends_with("out of range")), "{text}");
        }
    }

    proptest! {
        #[test]
        fn near_floats_never_panic(text in "[-+]?(0x)?[0-9a-f_.]{0,30}([ep][-+]?[0-9_]{0,8})?") {
            let _ = parse_float(&text);
        }

        /// Goal: every float survives a round trip through hexadecimal, which is exact.
        #[test]
        fn hexadecimal_gives_every_float_back(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let (sign, exponent) = (bits >> 63, (bits >> 52 & 0x7ff) as i64);
            let fraction = bits & ((1 << 52) - 1);
            let (lead, power) = if exponent == 0 { (0, -1022) } else { (1, exponent - 1023) };
            let text = format!("{}0x{lead}.{fraction:013x}p{power}", if sign == 1 { "-" } else { "" });
            prop_assert_eq!(parse_float(&text).map(f64::to_bits), Ok(bits), "{}", text);
        }
    }
}
