//! Tests of the output of one connection, and of several that share memory.

use super::*;
use crate::memory::Memory;
use proptest::prelude::*;
use tokio_test::task::{Spawn, spawn};

fn poll(task: &mut Spawn<()>, of: &Output) -> bool {
    task.enter(|cx, _| of.poll_capacity(cx)).is_ready()
}

fn piece(length: usize) -> Bytes {
    vec![7; length].into()
}

#[test]
fn a_connection_takes_spare_memory_and_returns_it() {
    let memory = Memory::new(Some(64 * STEP));
    let of = Arc::new(Output::new(Arc::new(ConnectionPermit::charged_to(memory.clone()))));
    let mut task = spawn(());
    let mut taken = Vec::new();
    while poll(&mut task, &of) {
        taken.push(counted(&of, piece(8192), false));
    }
    assert_eq!(memory.charged(Kind::Output), 16 * STEP, "as much as nobody has to give way for");
    let outstanding = taken.len() as u64 * (8192 + PIECE);
    assert!((FREE + 16 * STEP..FREE + 16 * STEP + 8192 + PIECE).contains(&outstanding));
    let mut other = spawn(());
    let others = Arc::new(Output::new(Arc::new(ConnectionPermit::charged_to(memory.clone()))));
    assert!(poll(&mut other, &others), "another has what is free");
    let small = [counted(&others, piece(FREE as usize), false)];
    assert!(!task.is_woken());
    drop(taken.remove(0));
    assert!(task.is_woken(), "with the first piece that is written");
    assert!(poll(&mut task, &of));
    drop((taken, small));
    assert_eq!(memory.charged(Kind::Output), 0);
    assert!(of.state.lock().charge.is_none(), "a connection that needs nothing is no holder");
}

/// Goal: parts of a piece count until the last one is dropped. A short piece is copied, and does not count if it ends
/// its body.
#[test]
fn pieces_count_until_their_last_part_is_dropped() {
    let of = Arc::new(Output::new(Arc::default()));
    let outstanding = || of.state.lock().outstanding;
    let mut data = counted(&of, piece(5000), false);
    let part = data.split_to(10);
    drop(data);
    assert_eq!((outstanding(), part.as_ref()), (5000 + PIECE, &[7; 10][..]));
    drop(part);
    let large = piece(100_000);
    let short = counted(&of, large.slice(..9), false);
    assert!(large.is_unique(), "it is a copy");
    assert_eq!(outstanding(), 9 + PIECE);
    drop(short);
    let _last = counted(&of, large.slice(..9), true);
    assert_eq!(outstanding(), 0);
}

#[test]
fn a_head_keeps_its_charge_until_it_is_encoded_and_written() {
    let of = Arc::new(Output::new(Arc::default()));
    let memory = Memory::new(None);
    let charged = memory.share(1).hold([127, 0, 0, 1].into(), 100).expect("no bound");
    let mut head = HeaderMap::new();
    head.insert("x-short", HeaderValue::from_static("a"));
    head.insert("x-long", HeaderValue::from_static("abc"));
    charge(&of, &mut head, HeadCharge::new(charged));
    assert_eq!(head["x-long"], "abc");
    assert!(head["x-long"].is_sensitive(), "no table keeps it");
    of.flushed();
    assert_eq!(memory.held(), 1, "the head is there");
    drop(head);
    assert_eq!(memory.held(), 1, "what was made of it is not written");
    of.flushed();
    assert_eq!(memory.held(), 0);
}

#[derive(Clone, Debug)]
enum Op {
    /// A body of this connection is polled, and has so many bytes.
    Ask { connection: usize, body: usize, length: usize },
    /// Some of a connection's pieces are written.
    Write { connection: usize, pieces: usize },
    /// A body is dropped.
    Leave { connection: usize, body: usize },
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..3usize, 0..3usize, 1..70_000usize)
            .prop_map(|(connection, body, length)| Op::Ask { connection, body, length }),
        2 => (0..3usize, 1..9usize).prop_map(|(connection, pieces)| Op::Write { connection, pieces }),
        1 => (0..3usize, 0..3usize).prop_map(|(connection, body)| Op::Leave { connection, body }),
    ]
}

proptest! {
    /// For any order of polls and writes: no connection exceeds its limit by more than a piece, all together stay
    /// within the memory, and no body waits forever. A waiting body's connection has outstanding data, and wakes it
    /// before the last of that is written.
    #[test]
    fn waiting_bodies_are_woken(steps in 0_u64..20, ops in prop::collection::vec(any_op(), 1..300)) {
        let memory = Memory::new(Some(4 * steps * STEP));
        let connection = |_| Arc::new(Output::new(Arc::new(ConnectionPermit::charged_to(memory.clone()))));
        let connections: Vec<_> = (0..3).map(connection).collect();
        let mut bodies: Vec<Vec<_>> = (0..3).map(|_| (0..3).map(|_| (spawn(()), false)).collect()).collect();
        let mut written: Vec<std::collections::VecDeque<Bytes>> = vec![Default::default(); 3];
        for op in ops {
            match op {
                Op::Ask { connection, body, length } => {
                    let of = &connections[connection];
                    let (task, waits) = &mut bodies[connection][body];
                    *waits = !poll(task, of);
                    if !*waits {
                        written[connection].push_back(counted(of, piece(length), false));
                    }
                }
                Op::Write { connection, pieces } => {
                    let pieces = pieces.min(written[connection].len());
                    written[connection].drain(..pieces).for_each(drop);
                }
                Op::Leave { connection, body } => bodies[connection][body] = (spawn(()), false),
            }
            prop_assert!(memory.charged(Kind::Output) <= steps * STEP);
            for (of, bodies) in connections.iter().zip(&bodies) {
                let state = of.state.lock();
                let (outstanding, allowed) = (state.outstanding, state.allowed());
                prop_assert!(outstanding < allowed + 70_000 + PIECE, "{outstanding} of {allowed}");
                for (task, waits) in bodies {
                    prop_assert!(!waits || task.is_woken() || outstanding >= allowed, "{outstanding} of {allowed}");
                }
            }
        }
        written.clear();
        prop_assert!(bodies.iter().flatten().all(|(task, waits)| !waits || task.is_woken()));
        prop_assert_eq!(memory.charged(Kind::Output), 0);
    }
}
