//! The sample workload under a name of its own, so that these tests find it wherever cargo puts it; with `E2E_STREAMS`
//! in its environment the one whose answers do not end, with `E2E_TALKS` one that speaks no HTTP, with `E2E_GRPC` one that
//! speaks HTTP/2 alone. It starts when its gate is open ([`e2e::gate`]).

fn main() -> std::process::ExitCode {
    e2e::gate::pass();
    match (std::env::var_os("E2E_STREAMS"), std::env::var_os("E2E_TALKS")) {
        (Some(_), _) => e2e::streams::main(),
        (None, Some(first)) => e2e::talk::main(first == "server"),
        (None, None) if std::env::var_os("E2E_GRPC").is_some() => e2e::grpc::main(),
        (None, None) => hello::main(),
    }
}
