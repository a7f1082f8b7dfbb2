//! The request path over HTTP/2: any frames from a client, to a workload with a pod and to one at zero.
//!
//! # Invariants
//!
//! - Nothing panics.
//! - The memory charged for the client's requests and frames is released when the client has disconnected.
//! - The next client is served.

use crate::requests::{Target, start};
use bolero::TypeGenerator;
use fuzz::{INPUTS, TIME};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Memory limit that a few frames can exceed.
const MEMORY_LIMIT: u64 = 4 << 20;

/// Time between two checks whether memory is still charged, and the maximum number of checks.
const CHECK_PERIOD: Duration = Duration::from_micros(100);
const CHECKS_MAX: u32 = 200_000;

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    /// A request, or the first part of its head.
    Head { stream: u8, references: u8, asleep: bool, ends: bool, whole: bool },
    /// Another part of a head.
    More { stream: u8, references: u8, whole: bool },
    /// Data frames.
    Data { stream: u8, length: u8, times: u8, ends: bool },
    /// A frame of any kind.
    Any { kind: u8, flags: u8, stream: u8, payload: Vec<u8> },
    /// Raw bytes that are no frame.
    Raw([u8; 5]),
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags, 0, 0, 0, stream]);
    bytes.extend(payload);
    bytes
}

fn render(step: &Step) -> Vec<u8> {
    // Streams of clients are odd. There are only a few, so that several frames have the same stream.
    let odd = |stream: &u8| (stream % 8) * 2 + 1;
    match step {
        Step::Head { stream, references, asleep, ends, whole } => {
            // POST, http, /, the host as a literal, and a field for the dynamic table.
            let host: &[u8] = if *asleep { b"asleep.ns" } else { b"app.ns" };
            let mut block = vec![0x83, 0x86, 0x84, 0x01, host.len() as u8];
            block.extend(host);
            block.extend([0x40, 1, b'x', 3, b'a', b'b', b'c']);
            block.extend(std::iter::repeat_n(0xbe, usize::from(*references)));
            frame(1, u8::from(*ends) | u8::from(*whole) << 2, odd(stream), &block)
        }
        Step::More { stream, references, whole } => {
            frame(9, u8::from(*whole) << 2, odd(stream), &vec![0xbe; usize::from(*references) * 16])
        }
        Step::Data { stream, length, times, ends } => {
            let mut bytes =
                frame(0, 0, odd(stream), &vec![b'x'; usize::from(length % 4)]).repeat(usize::from(*times) * 8);
            if *ends {
                bytes.extend(frame(0, 1, odd(stream), b""));
            }
            bytes
        }
        Step::Any { kind, flags, stream, payload } => frame(kind % 12, *flags, stream % 16, payload),
        Step::Raw(bytes) => bytes.to_vec(),
    }
}

fn check(target: &Target, steps: &[Step]) {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, b""));
    steps.iter().for_each(|step| bytes.extend(render(step)));
    let mut stream = TcpStream::connect(target.address).expect("it listens");
    let _ = stream.write_all(&bytes);
    // Wait for the response to the settings, so that some input has been read.
    let _ = stream.read(&mut [0; 64]);
    drop(stream);
    let charged = || (target.activator.held(), target.activator.input());
    let is_released = (0..CHECKS_MAX).any(|_| {
        std::thread::sleep(CHECK_PERIOD);
        charged() == ((0, 0), 0)
    });
    assert!(is_released, "held and input: {:?}", charged());
    target.check_alive();
}

#[test]
fn any_frames_from_a_client() {
    let target = std::panic::AssertUnwindSafe(start(Some(MEMORY_LIMIT)));
    bolero::check!().with_iterations(INPUTS).with_test_time(TIME).with_type::<Vec<Step>>().for_each(move |steps| {
        check(&target, steps);
    });
}
