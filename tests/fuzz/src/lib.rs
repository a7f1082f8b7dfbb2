//! Inputs for the fuzz targets in `tests/`: texts put together from pieces that matter to a parser.
//!
//! Bytes at random seldom get past the first line of a grammar. So an input is a list of [`Piece`]s; most name a
//! fragment of the target's grammar, some are raw bytes, some a fragment with one byte changed. A coverage-guided
//! engine works on the same lists.
//!
//! # Running longer
//!
//! `cargo test -p fuzz` gives each target a bounded number of inputs. One command fuzzes on, on stable Rust:
//!
//! ```console
//! $ BOLERO_RANDOM_ITERATIONS=100000000 BOLERO_RANDOM_TEST_TIME_MS=600000 cargo test --release -p fuzz -- --nocapture
//! ```
//!
//! With `cargo install cargo-bolero` the same targets run under libFuzzer, which follows coverage and keeps a corpus:
//! `cargo bolero test --rustc-bootstrap -p fuzz --test fuzz stats::any_frame`.

use bolero::TypeGenerator;
use std::time::Duration;

/// Inputs for each target, and the time for them, whichever ends first; the engine's environment variables go before.
pub const INPUTS: usize = 100_000;
/// See [`INPUTS`].
pub const TIME: Duration = Duration::from_secs(2);

/// A part of an input.
#[derive(Clone, Debug, TypeGenerator)]
pub enum Piece {
    /// One of the target's fragments.
    Fragment(u8),
    /// The same.
    Another(u8),
    /// One of them with a byte of it replaced.
    Changed {
        /// Which one.
        fragment: u8,
        /// Where.
        at: u8,
        /// By what.
        byte: u8,
    },
    /// As it is.
    Raw([u8; 3]),
    /// One byte many times.
    Run {
        /// The byte.
        byte: u8,
        /// How often, in 16s.
        times: u8,
    },
}

/// The bytes that `pieces` come to.
pub fn render(pieces: &[Piece], fragments: &[&str]) -> Vec<u8> {
    let fragment = |n: &u8| fragments[usize::from(*n) % fragments.len()].as_bytes();
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Fragment(n) | Piece::Another(n) => bytes.extend_from_slice(fragment(n)),
            Piece::Changed { fragment: n, at, byte } => {
                let mut changed = fragment(n).to_vec();
                if !changed.is_empty() {
                    let at = usize::from(*at) % changed.len();
                    changed[at] = *byte;
                }
                bytes.extend(changed);
            }
            Piece::Raw(raw) => bytes.extend_from_slice(raw),
            Piece::Run { byte, times } => bytes.extend(std::iter::repeat_n(*byte, usize::from(*times) * 16)),
        }
    }
    bytes
}

/// The same as text; what is no UTF-8 is replaced.
pub fn render_text(pieces: &[Piece], fragments: &[&str]) -> String {
    String::from_utf8_lossy(&render(pieces, fragments)).into_owned()
}
