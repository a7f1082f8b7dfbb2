//! Which objects are this process's to act on, and for how long.

use crate::ObjectKey;
use common_runtime::lease::WriteGuard;
use tokio::sync::watch;

/// Which objects this process leads. Objects that stand for one revision have its key.
pub trait Leadership: Send + Sync + 'static {
    /// Whether this process leads the object.
    fn owns(&self, key: &ObjectKey) -> bool;

    /// Counts changes of what this process leads. Only the reconcilers know all objects, so at each change it is for
    /// them to look at every one: to take up what was gained, to give up what was lost.
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1 // Leads the same for ever.
    }

    /// Begins a write on behalf of the object, immediately before it is sent; `None`: the lease may end in the next two
    /// seconds. The object stays this process's for as long as the guard lives, and the write must be over at its
    /// deadline.
    fn begin_write(&self, key: &ObjectKey) -> Option<WriteGuard>;
}

/// Leads everything for ever.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Leadership for Alone {
    fn owns(&self, _: &ObjectKey) -> bool {
        true
    }

    fn begin_write(&self, _: &ObjectKey) -> Option<WriteGuard> {
        Some(WriteGuard::unbounded())
    }
}
