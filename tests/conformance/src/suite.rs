//! What is started once for all cases of a kind.

use serde_json::Value;

use crate::Mismatch;

/// What cases of one kind share, a server for example.
pub trait Suite {
    /// Runs one case.
    ///
    /// # Errors
    /// Says what differed.
    fn check(&mut self, case: &Value) -> Result<(), Mismatch>;
}

/// The server that API scenarios are sent to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// One that is started for this run.
    #[default]
    Embedded,
    /// One that runs already.
    Running {
        /// Where it listens, like `https://127.0.0.1:6443`.
        url: String,
        /// An administrator's bearer token.
        token: String,
    },
}
