//! Environment variables for TLS on the admin port.

use super::*;
use crate::tests::variables;

pub(crate) fn tls_from(pairs: &[(&str, &str)]) -> Result<Option<AdminTls>, EnvironmentError> {
    AdminTls::from_env(&variables(PREFIX, pairs))
}

#[test]
fn an_invalid_setting_is_an_error_that_names_its_variable() {
    assert!(tls_from(&[]).expect("off").is_none());
    assert!(tls_from(&[("CERT", "c"), ("KEY", "k"), ("CLIENT_AUTH", "None")]).expect("on").is_some());
    let pair = [("CERT", "c"), ("KEY", "k")];
    let rows: [(&[(&str, &str)], &str); 5] = [
        (&pair[..1], "CERT"),
        (&pair[1..], "KEY"),
        (&[pair[0], pair[1], ("CLIENT_AUTH", "require")], "CLIENT_AUTH"),
        (&[pair[0], pair[1], ("CLIENT_AUTH", "often")], "CLIENT_AUTH"),
        (&[pair[0], pair[1], ("MIN_VERSION", "1.1")], "MIN_VERSION"),
    ];
    for (pairs, named) in rows {
        assert_eq!(tls_from(pairs).expect_err(named).variable, format!("{PREFIX}_{named}"));
    }
}
