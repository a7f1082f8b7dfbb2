//! The sample workload under a name of its own, so that these tests find it wherever cargo puts it; with `E2E_STREAMS`
//! in its environment the one whose answers do not end.

fn main() -> std::process::ExitCode {
    match std::env::var_os("E2E_STREAMS") {
        Some(_) => e2e::streams::main(),
        None => hello::main(),
    }
}
