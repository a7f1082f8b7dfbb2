//! Inputs for the fuzz targets in `tests/`: texts composed of fragments that matter to a parser.
//!
//! Random bytes seldom get past the first line of a grammar. So an input is a list of [`Piece`]s: most are fragments of
//! the target's grammar, some are raw bytes, some a fragment with one byte changed. A coverage-guided engine works on
//! the same lists.
//!
//! # Running longer
//!
//! `cargo test -p fuzz` runs a bounded number of inputs per target. One command runs longer, on stable Rust:
//!
//! ```console
//! $ BOLERO_RANDOM_ITERATIONS=100000000 BOLERO_RANDOM_TEST_TIME_MS=600000 cargo test --release -p fuzz -- --nocapture
//! ```
//!
//! With `cargo install cargo-bolero` the same targets run under libFuzzer, which follows coverage and keeps a corpus:
//! `cargo bolero test --rustc-bootstrap -p fuzz --test fuzz stats::any_frame`.

use bolero::TypeGenerator;
use std::time::Duration;

/// Maximum number of inputs for each target; a run ends at this bound or at [`TIME`]. The engine's environment
/// variables override both.
pub const INPUTS: usize = 100_000;
/// Maximum time for each target. See [`INPUTS`].
pub const TIME: Duration = Duration::from_secs(2);

/// Part of an input.
#[derive(Clone, Debug, TypeGenerator)]
pub enum Piece {
    /// Fragment of the target's grammar.
    Fragment(u8),
    /// Fragment of the target's grammar; makes fragments more frequent.
    Another(u8),
    /// Fragment with one byte replaced.
    Changed {
        /// Number of the fragment.
        fragment: u8,
        /// Position of the byte.
        at: u8,
        /// New value of the byte.
        byte: u8,
    },
    /// Raw bytes.
    Raw([u8; 3]),
    /// Repeated byte.
    Run {
        /// Value of the byte.
        byte: u8,
        /// Number of repetitions, in multiples of 16.
        times: u8,
    },
}

/// Returns the bytes of `pieces`.
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

/// Returns the text of `pieces`. Invalid UTF-8 is replaced.
pub fn render_text(pieces: &[Piece], fragments: &[&str]) -> String {
    String::from_utf8_lossy(&render(pieces, fragments)).into_owned()
}
