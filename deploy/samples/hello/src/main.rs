//! The sample workload as a program of its own.

fn main() -> std::process::ExitCode {
    hello::main()
}
