//! Tests of the program as a process with an environment.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill(); // It may have exited.
        let _ = self.0.wait();
    }
}

/// Returns an unused loopback address. A search for a free port would bind it, and a process that another test is just
/// starting may keep that socket open for a moment. Our connection could then reach that socket and be reset.
fn own_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [low, middle, high, _] = std::process::id().to_le_bytes();
    let ip = Ipv4Addr::new(127, 32 + high % 32, middle, low);
    (ip, 18_000 + u16::from(NEXT.fetch_add(1, Ordering::Relaxed))).into()
}

fn start(address: SocketAddr, text: &str) -> Running {
    start_by(Command::new(env!("CARGO_BIN_EXE_hello")).env("HELLO_TEXT", text), address)
}

fn start_by(command: &mut Command, address: SocketAddr) -> Running {
    command.env("HOST", address.ip().to_string()).env("PORT", address.port().to_string()).env("POD_NAME", "pod-1");
    Running(command.spawn().expect("the program starts"))
}

#[allow(clippy::disallowed_methods, reason = "a test without a runtime waits by the wall clock")]
fn connect(address: SocketAddr) -> TcpStream {
    let deadline = SystemTime::now() + Duration::from_secs(30);
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(SystemTime::now() < deadline, "not listening: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn responses_name_the_pod_and_follow_the_query() {
    let address = own_address();
    let _running = start(address, "abc");
    let answer = get(address, "/?bytes=7&status=404");
    assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with("\r\n\r\nabcabca"), "{answer}");
    assert!(answer.contains("x-pod: pod-1"), "{answer}");
    assert!(get(address, "/headers").contains(r#"["host","a"]"#));
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
}

/// Goal: a client that sends its whole body before it reads gets its response, even if the body is not used. Method:
/// the body is much larger than the kernel's buffers.
#[test]
fn a_client_that_sends_an_unused_body_gets_its_response() {
    const BODY: usize = 32 << 20;
    let address = own_address();
    let _running = start(address, "");
    let mut stream = connect(address);
    let head = format!("POST /?status=404 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {BODY}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(&vec![b'x'; BODY]).expect("read to its end");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

/// Goal: a load test from a shell with few file descriptors gets its connections.
#[test]
fn the_descriptor_limit_is_raised_to_the_hard_limit() {
    let address = own_address();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 100; exec \"$0\"", env!("CARGO_BIN_EXE_hello")]);
    let running = start_by(&mut command, address);
    assert!(get(address, "/").starts_with("HTTP/1.1 200"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.0.id())).expect("limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let [soft, hard, _] = line["Max open files".len()..].split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    assert_eq!(soft, hard);
    assert_ne!(soft, "100");
}

#[test]
fn an_invalid_setting_ends_the_program_with_a_reason() {
    let output = Command::new(env!("CARGO_BIN_EXE_hello")).env("HELLO_START_MS", "soon").output().expect("it runs");
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("HELLO_START_MS=\"soon\" must be a whole number"), "{stderr}");
}
