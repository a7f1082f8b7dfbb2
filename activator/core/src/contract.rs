//! The contract between an activator and a revision's pods: which headers each side may set and believe.

/// What a revision's pods expect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// A program that knows nothing of us.
    Plain,
    /// A queue-proxy of our own making: clients' internal fields are not believed.
    QueueProxy,
    /// A queue-proxy in Knative: as its activator does.
    Knative,
}
