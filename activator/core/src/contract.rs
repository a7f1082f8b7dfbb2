//! Contract between an activator and the pods of a revision: the headers that each side may set and trust.

/// Protocol that the pods of a revision expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// A plain program that knows nothing of the activator.
    Plain,
    /// A queue-proxy of Zeroscale. It does not trust internal headers set by clients.
    QueueProxy,
    /// A Knative queue-proxy. The activator follows the protocol of Knative's activator.
    Knative,
}
