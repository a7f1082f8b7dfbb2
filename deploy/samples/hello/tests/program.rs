//! The program as its users meet it: a process with an environment.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill(); // It may have exited.
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
}

fn start(port: u16, env: &[(&str, &str)]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hello"));
    command.env("HOST", "127.0.0.1").env("PORT", port.to_string()).env("POD_NAME", "pod-1");
    command.envs(env.iter().copied());
    Running(command.spawn().expect("the program starts"))
}

#[allow(clippy::disallowed_methods, reason = "a test without a runtime waits by the wall clock")]
fn get(port: u16, path: &str) -> String {
    let patience = SystemTime::now() + Duration::from_secs(10);
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(error) => assert!(SystemTime::now() < patience, "not listening: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn it_answers_with_its_pod_and_obeys_the_query() {
    let port = free_port();
    let _running = start(port, &[("HELLO_TEXT", "abc")]);
    let answer = get(port, "/?bytes=7&status=404");
    assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with("\r\n\r\nabcabca"), "{answer}");
    assert!(answer.contains("x-pod: pod-1"), "{answer}");
    assert!(get(port, "/headers").contains(r#"["host","a"]"#));
    assert!(get(port, "/healthz").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_bad_setting_ends_it_with_a_reason() {
    let output = Command::new(env!("CARGO_BIN_EXE_hello")).env("HELLO_START_MS", "soon").output().expect("it runs");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("HELLO_START_MS=\"soon\" must be a whole number"), "{said}");
}
