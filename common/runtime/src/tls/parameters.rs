//! TLS parameters that a server accepts, under Go's names of versions, cipher suites and curves.
//!
//! A name that Go does not know is rejected. A name that Go knows and ring does not offer (CBC suites, P-521,
//! X25519MLKEM768) is dropped with a warning, and rejected if no supported name is left. TLS 1.3 has no choice of
//! suites, as in Go.

use crate::environment::EnvironmentError;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::{CipherSuite, NamedGroup, SupportedCipherSuite, SupportedProtocolVersion};
use tokio_rustls::rustls;

/// TLS parameters that a server accepts.
#[derive(Clone, Debug)]
pub struct Parameters {
    versions: Vec<&'static SupportedProtocolVersion>,
    suites: Vec<SupportedCipherSuite>,
    curves: Vec<&'static dyn SupportedKxGroup>,
}

/// Suites that Go knows and ring does not offer.
const OTHER_SUITES: [&str; 5] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
];

/// Curves under both of Go's names; `None`: ring does not offer the curve.
const CURVES: [(&str, Option<NamedGroup>); 8] = [
    ("X25519", Some(NamedGroup::X25519)),
    ("CurveP256", Some(NamedGroup::secp256r1)),
    ("P-256", Some(NamedGroup::secp256r1)),
    ("CurveP384", Some(NamedGroup::secp384r1)),
    ("P-384", Some(NamedGroup::secp384r1)),
    ("CurveP521", None),
    ("P-521", None),
    ("X25519MLKEM768", None),
];

impl Default for Parameters {
    /// Returns TLS 1.3 with everything that ring offers.
    fn default() -> Self {
        let ring = ring::default_provider();
        Self { versions: vec![&rustls::version::TLS13], suites: ring.cipher_suites, curves: ring.kx_groups }
    }
}

impl Parameters {
    /// Reads `PREFIX_MIN_VERSION` (default 1.3), `_MAX_VERSION`, `_CIPHER_SUITES` and `_CURVE_PREFERENCES`. Fails if a
    /// variable contains an unknown name.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>, prefix: &str) -> Result<Self, EnvironmentError> {
        let mut parameters = Self::default();
        let read = |suffix: &str| {
            let variable = format!("{prefix}_{suffix}");
            get(&variable).filter(|value| !value.trim().is_empty()).map(|value| (variable, value))
        };
        let version = |suffix| {
            let Some((variable, value)) = read(suffix) else { return Ok(None) };
            match value.as_str() {
                "1.2" => Ok(Some(2)),
                "1.3" => Ok(Some(3)),
                _ => Err(EnvironmentError::new(variable, value, "must be 1.2 or 1.3")),
            }
        };
        let (min, max) = (version("MIN_VERSION")?.unwrap_or(3), version("MAX_VERSION")?.unwrap_or(3));
        parameters.versions = match (min, max) {
            (3, 3) => vec![&rustls::version::TLS13],
            (2, 3) => vec![&rustls::version::TLS13, &rustls::version::TLS12],
            (2, 2) => vec![&rustls::version::TLS12],
            _ => {
                let (variable, rule) = (format!("{prefix}_MAX_VERSION"), "must not be lower than the minimum version");
                return Err(EnvironmentError::new(variable, "1.2", rule));
            }
        };
        if let Some((variable, value)) = read("CIPHER_SUITES") {
            // rustls calls the suites of TLS 1.3 by other names than Go.
            let name = |suite: CipherSuite| suite.as_str().unwrap_or_default().replace("TLS13_", "TLS_");
            let known = parameters.suites.iter().map(|suite| (name(suite.suite()), Some(suite.suite())));
            let other = OTHER_SUITES.map(|name| (name.to_owned(), None));
            let chosen = choose(&variable, &value, &known.chain(other).collect::<Vec<_>>())?;
            let is_tls13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
            parameters.suites.retain(|suite| is_tls13(suite) || chosen.contains(&suite.suite()));
        }
        if let Some((variable, value)) = read("CURVE_PREFERENCES") {
            let chosen = choose(&variable, &value, &CURVES)?;
            parameters.curves.retain(|curve| chosen.contains(&curve.name()));
            parameters.curves.sort_by_key(|curve| chosen.iter().position(|name| *name == curve.name()));
        }
        Ok(parameters)
    }

    pub(super) fn versions(&self) -> &[&'static SupportedProtocolVersion] {
        &self.versions
    }

    pub(super) fn provider(&self) -> CryptoProvider {
        CryptoProvider {
            cipher_suites: self.suites.clone(),
            kx_groups: self.curves.clone(),
            ..ring::default_provider()
        }
    }
}

/// Returns the items in the comma-separated `value`, in its order; blanks are skipped.
fn choose<T: Copy>(
    variable: &str,
    value: &str,
    known: &[(impl AsRef<str>, Option<T>)],
) -> Result<Vec<T>, EnvironmentError> {
    let refused = |rule: String| EnvironmentError::new(variable.to_owned(), value, rule);
    let mut chosen = Vec::new();
    for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match known.iter().find(|(known, _)| known.as_ref() == name) {
            Some((_, Some(number))) => chosen.push(*number),
            Some((_, None)) => tracing::warn!(variable, name, "the name is not supported here and has no effect"),
            None => {
                let names: Vec<&str> = known.iter().map(|(name, _)| name.as_ref()).collect();
                return Err(refused(format!("{name:?} is not one of {}", names.join(", "))));
            }
        }
    }
    let none = || refused("contains no name that is supported here".to_owned());
    if chosen.is_empty() { Err(none()) } else { Ok(chosen) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::variables;

    fn read(pairs: &[(&str, &str)]) -> Result<Parameters, EnvironmentError> {
        Parameters::from_env(&variables("X_TLS", pairs), "X_TLS")
    }

    #[test]
    fn gos_names_are_accepted_and_unknown_ones_rejected() {
        assert_eq!(read(&[]).expect("defaults").versions().len(), 1);
        assert_eq!(read(&[("MIN_VERSION", "1.2")]).expect("valid").versions().len(), 2);
        let suites = read(&[("CIPHER_SUITES", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, ,")]).expect("valid");
        assert_eq!(suites.suites.iter().filter(|suite| suite.tls13().is_none()).count(), 1);
        assert_eq!(suites.suites.iter().filter(|suite| suite.tls13().is_some()).count(), 3, "1.3 has no choice");
        let curves = read(&[("CURVE_PREFERENCES", "P-384,X25519MLKEM768,CurveP256")]).expect("valid");
        let names: Vec<_> = curves.curves.iter().map(|curve| curve.name()).collect();
        assert_eq!(names, [NamedGroup::secp384r1, NamedGroup::secp256r1]);
        for (key, value) in [
            ("MIN_VERSION", "1.1"),
            ("MAX_VERSION", "1.2"),
            ("CIPHER_SUITES", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA255"),
            ("CURVE_PREFERENCES", "P-521"),
        ] {
            let error = read(&[(key, value)]).expect_err(value);
            assert_eq!((&*error.variable, error.value.as_deref()), (&*format!("X_TLS_{key}"), Some(value)));
        }
    }
}
