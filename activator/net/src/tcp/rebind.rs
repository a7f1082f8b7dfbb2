//! A socket that moves to the runtime of the worker that uses it.
//!
//! Each worker has its own I/O driver ([`crate::worker`]), and a socket is registered with the driver of the worker
//! that created it. If another worker uses the socket, it is registered there instead. Otherwise every response would
//! wake two threads.

use crate::worker;
use std::io::{self, ErrorKind};
use tokio::net::TcpStream;

/// A socket, and the worker whose driver it is registered with.
#[derive(Debug)]
pub(crate) struct Rebindable {
    /// `None` after a failed registration, which closed the socket.
    stream: Option<TcpStream>,
    worker: Option<usize>,
}

impl Rebindable {
    /// Wraps a socket that was created on this worker.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream: Some(stream), worker: worker::current() }
    }

    /// Reports whether the socket is registered with this worker.
    pub(crate) fn is_here(&self) -> bool {
        self.worker == worker::current()
    }

    /// Registers the socket with this worker. The descriptor stays the same.
    ///
    /// # Errors
    /// The worker's driver rejects the socket, which is then closed.
    pub(crate) fn rebind(&mut self) -> io::Result<()> {
        let stream = self.stream.take().ok_or(ErrorKind::NotConnected)?;
        self.stream = Some(TcpStream::from_std(stream.into_std()?)?);
        self.worker = worker::current();
        Ok(())
    }

    /// Takes the socket out.
    ///
    /// # Errors
    /// The socket is closed.
    pub(crate) fn take(&mut self) -> io::Result<TcpStream> {
        self.stream.take().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Returns the socket.
    ///
    /// # Errors
    /// The socket is closed.
    pub(crate) fn get(&self) -> io::Result<&TcpStream> {
        self.stream.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Returns the socket mutably.
    ///
    /// # Errors
    /// The socket is closed.
    pub(crate) fn get_mut(&mut self) -> io::Result<&mut TcpStream> {
        self.stream.as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
    }
}
