//! Reconciles against a mock API server.
