//! Warnings for whoever makes an object, as admission gives them in Kubernetes. Which objects nothing acts on is known
//! to whoever runs the controllers, so the server is told.

/// What the maker of an object should know of it, if anything: by its apiVersion, its kind, and `NAMESPACE/NAME`.
pub type CreateWarning = fn(&str, &str, &str) -> Option<String>;
