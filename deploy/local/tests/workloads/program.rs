//! The program that pods of these tests run: this test binary in another role.
//!
//! `PROGRAM` selects the role: `hello` is the sample; `everywhere` listens on every address at `PORT`.

use std::io::Write;
use std::net::TcpListener;

/// Returns the command line of the program.
pub(crate) fn command() -> Vec<String> {
    let exe = std::env::current_exe().expect("this executable");
    let words = [exe.to_str().expect("a path of text"), "program::program", "--exact", "--nocapture"];
    words.map(str::to_owned).to_vec()
}

#[test]
fn program() {
    let read = |name: &str| std::env::var(name).unwrap_or_default();
    match read("PROGRAM").as_str() {
        "hello" => {
            let code = hello::main();
            std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
        }
        "everywhere" => listen(&format!("0.0.0.0:{}", read("PORT"))),
        _ => {} // An ordinary test run: nothing to test here.
    }
}

/// Listens and never responds. A failure is reported as most programs do.
fn listen(address: &str) {
    let listener = TcpListener::bind(address).unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "cannot listen on {address}: {error}");
        std::process::exit(1)
    });
    listener.incoming().for_each(drop);
}
