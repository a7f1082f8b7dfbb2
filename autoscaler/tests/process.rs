//! Tests of the binary alone: its errors if settings are missing.

#![allow(missing_docs, reason = "tests")]

use std::process::{Command, Output};

fn run(env: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_autoscaler"));
    command.env_clear().envs(env.iter().copied()).args(args).output().expect("started")
}

#[test]
fn a_missing_variable_is_named_and_ends_it() {
    let complete = [("POD_NAME", "autoscaler-0"), ("POD_IP", "127.0.0.1"), ("SYSTEM_NAMESPACE", "knative-serving")];
    for missing in 0..complete.len() {
        let mut rest = complete.to_vec();
        let (name, _) = rest.remove(missing);
        let output = run(&rest, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(&format!("environment variable {name} is not set")), "{errors}");
    }
}

#[test]
fn a_kubeconfig_that_is_not_there_is_named() {
    let env = [("POD_NAME", "autoscaler-0"), ("POD_IP", "127.0.0.1"), ("SYSTEM_NAMESPACE", "knative-serving")];
    let output = run(&env, &["--kubeconfig", "/nowhere/kubeconfig"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("--kubeconfig /nowhere/kubeconfig"), "{errors}");
}
