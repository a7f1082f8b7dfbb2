//! Tests of the binary alone: its errors if settings are missing.

#![allow(missing_docs, reason = "tests")]

use std::process::Command;

const SETTINGS: [(&str, &str); 3] =
    [("POD_NAME", "autoscaler-0"), ("POD_IP", "127.0.0.1"), ("SYSTEM_NAMESPACE", "knative-serving")];

fn expect_error(env: &[(&str, &str)], args: &[&str], error: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_autoscaler"));
    let output = command.env_clear().envs(env.iter().copied()).args(args).output().expect("started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(error), "{errors}");
}

#[test]
fn a_missing_setting_ends_the_process_and_is_named() {
    for missing in 0..SETTINGS.len() {
        let mut rest = SETTINGS.to_vec();
        let (name, _) = rest.remove(missing);
        expect_error(&rest, &[], &format!("environment variable {name} is not set"));
    }
    expect_error(&SETTINGS, &["--kubeconfig", "/nowhere/kubeconfig"], "--kubeconfig /nowhere/kubeconfig");
}
