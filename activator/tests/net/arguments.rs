//! Arguments of the binary: `--help` and `--version` print text, all others are errors, and none starts the activator.

use std::process::Command;

#[test]
fn arguments_are_answered_without_starting() {
    let run = |argument: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_activator"));
        let output = command.env_clear().arg(argument).output().expect("started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, help, _) = run("--help");
    assert!(code == Some(0) && help.contains("Usage: activator") && help.contains("environment variables"), "{help}");
    assert!(run("--version").1.starts_with("activator "));
    let (code, _, errors) = run("--prot=8012");
    assert!(code == Some(2) && errors.contains("--prot"), "{errors}");
}
