//! State that is started once for all cases of a kind.

use serde_json::Value;

use crate::Mismatch;

/// State shared by the cases of one kind, for example a server.
pub trait Suite {
    /// Runs one case.
    ///
    /// # Errors
    /// Reports the difference.
    fn check(&mut self, case: &Value) -> Result<(), Mismatch>;
}

/// Server that API scenarios are sent to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Server that is started for this run.
    #[default]
    Embedded,
    /// Server that is already running.
    Running {
        /// URL of the server, like `https://127.0.0.1:6443`.
        url: String,
        /// Bearer token of an administrator.
        token: String,
    },
}
