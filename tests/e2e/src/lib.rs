//! The whole system over real sockets.
