//! State that is started once for all cases of a kind.

use serde_json::Value;

use crate::Mismatch;

/// Runs one case with the state that the cases of its kind share, for example a server.
pub type Suite = Box<dyn FnMut(&Value) -> Result<(), Mismatch>>;

/// URL and administrator token of the server that API scenarios are sent to. Without them, a server is started for the
/// run.
pub type Target = Option<(String, String)>;
