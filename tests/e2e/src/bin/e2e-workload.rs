//! The sample workload under a name of its own, so that these tests find it wherever cargo puts it.

fn main() -> std::process::ExitCode {
    hello::main()
}
