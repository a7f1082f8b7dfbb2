//! A socket that is registered with the runtime of the worker that uses it.
//!
//! Each worker has an I/O driver of its own ([`crate::worker`]), and a socket is registered with that of the worker
//! where it was made. One that another worker uses from now on is registered anew there: else every answer would wake
//! two threads rather than one.

use crate::worker;
use std::io::{self, ErrorKind};
use tokio::net::TcpStream;

/// A socket, and the worker whose driver it is registered with.
#[derive(Debug)]
pub(crate) struct Rebindable {
    /// None once it could not be registered, which closed it.
    stream: Option<TcpStream>,
    worker: Option<usize>,
}

impl Rebindable {
    /// One that was made on this worker.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream: Some(stream), worker: worker::current() }
    }

    /// Whether it is registered with this worker.
    pub(crate) fn is_here(&self) -> bool {
        self.worker == worker::current()
    }

    /// Registers it with this worker. The descriptor stays the same.
    ///
    /// # Errors
    /// The worker's driver does not take it; it is closed.
    pub(crate) fn rebind(&mut self) -> io::Result<()> {
        let stream = self.stream.take().ok_or(ErrorKind::NotConnected)?;
        self.stream = Some(TcpStream::from_std(stream.into_std()?)?);
        self.worker = worker::current();
        Ok(())
    }

    /// Hands the socket on.
    ///
    /// # Errors
    /// It is closed.
    pub(crate) fn take(&mut self) -> io::Result<TcpStream> {
        self.stream.take().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// The socket.
    ///
    /// # Errors
    /// It is closed.
    pub(crate) fn get(&self) -> io::Result<&TcpStream> {
        self.stream.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// The same.
    ///
    /// # Errors
    /// It is closed.
    pub(crate) fn get_mut(&mut self) -> io::Result<&mut TcpStream> {
        self.stream.as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
    }
}
