//! Tests of the error messages of the binary with incomplete settings.

#![allow(missing_docs, reason = "tests")]

use std::process::Command;

#[test]
fn errors_name_the_missing_or_invalid_setting() {
    let run = |env: &[(&str, &str)], args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_autoscaler-hpa"));
        let output = command.env_clear().envs(env.iter().copied()).args(args).output().expect("started");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let errors = run(&[], &[]);
    assert!(errors.contains("environment variable SYSTEM_NAMESPACE is not set"), "{errors}");
    let errors = run(&[("SYSTEM_NAMESPACE", "knative-serving")], &["--kubeconfig", "/nowhere/kubeconfig"]);
    assert!(errors.contains("--kubeconfig /nowhere/kubeconfig"), "{errors}");
    let errors = run(&[("SYSTEM_NAMESPACE", "s"), ("ZEROSCALE_MODE", "standalone")], &[]);
    assert!(errors.contains("supports only --hpa=native beside it"), "{errors}");
    let errors = run(&[], &["--horizontal-pod-autoscaler-sync-period=0s"]);
    assert!(errors.contains("must be positive"), "{errors}");
}
