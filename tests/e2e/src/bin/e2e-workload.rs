//! The sample workload under its own name, so that these tests find it wherever cargo puts it. The environment selects
//! its kind: `E2E_STREAMS` one with endless responses, `E2E_TALKS` one that does not use HTTP, `E2E_GRPC` one that only
//! uses HTTP/2. It starts when its gate is open ([`e2e::Gate`]).

fn main() -> std::process::ExitCode {
    e2e::workload::pass_gate();
    match (std::env::var_os("E2E_STREAMS"), std::env::var_os("E2E_TALKS")) {
        (Some(_), _) => e2e::streams::main(),
        (None, Some(first)) => e2e::talk::main(first == "server"),
        (None, None) if std::env::var_os("E2E_GRPC").is_some() => e2e::server::grpc(),
        (None, None) => hello::main(),
    }
}
