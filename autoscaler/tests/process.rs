//! The binaries on their own: what they say when they are told too little.

#![allow(missing_docs, reason = "tests")]

use std::process::{Command, Output};

fn run(env: &[(&str, &str)], args: &[&str]) -> Output {
    start(env!("CARGO_BIN_EXE_autoscaler"), env, args)
}

fn start(binary: &str, env: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(binary);
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

#[test]
fn autoscaler_hpa_names_what_is_missing_or_out_of_place() {
    let run = |env: &[(&str, &str)], args: &[&str]| {
        let output = start(env!("CARGO_BIN_EXE_autoscaler-hpa"), env, args);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let errors = run(&[], &[]);
    assert!(errors.contains("environment variable SYSTEM_NAMESPACE is not set"), "{errors}");
    let errors = run(&[("SYSTEM_NAMESPACE", "knative-serving")], &["--kubeconfig", "/nowhere/kubeconfig"]);
    assert!(errors.contains("--kubeconfig /nowhere/kubeconfig"), "{errors}");
    let errors = run(&[("SYSTEM_NAMESPACE", "s"), ("ZEROSCALE_MODE", "standalone")], &[]);
    assert!(errors.contains("only --hpa=native has a place beside it"), "{errors}");
    let errors = run(&[], &["--horizontal-pod-autoscaler-sync-period=0s"]);
    assert!(errors.contains("must be positive"), "{errors}");
}
