//! The sample workload as a program.

fn main() -> std::process::ExitCode {
    hello::main()
}
