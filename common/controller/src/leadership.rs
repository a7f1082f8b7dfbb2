//! Leadership: the objects that this process may act on, and for how long.

use crate::ObjectKey;
use common_runtime::lease::WriteGuard;
use tokio::sync::watch;

/// Leadership of this process over objects. Objects that belong to one revision have its key.
pub trait Leadership: Send + Sync + 'static {
    /// Reports whether this process leads the object.
    fn owns(&self, key: &ObjectKey) -> bool;

    /// Returns a counter of changes of leadership. At each change, reconcilers must check every object, to take over
    /// new ones and give up lost ones: only they know all objects.
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1 // Never changes.
    }

    /// Begins a write on behalf of the object, immediately before it is sent. Returns `None` if the lease may end in
    /// the next two seconds. This process keeps the object while the guard lives, and the write must be over at the
    /// guard's deadline.
    fn begin_write(&self, key: &ObjectKey) -> Option<WriteGuard>;
}

/// Leads everything forever.
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
