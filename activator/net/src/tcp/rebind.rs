//! A socket that waits for its input where it is used.
//!
//! Each lane has means of its own to wait for input ([`crate::worker`]), and a socket waits by those of the lane where
//! it was made. One that another lane uses from now on moves there: else every answer would wake two threads rather
//! than one.

use crate::worker;
use std::io::{self, ErrorKind};
use tokio::net::TcpStream;

/// A socket and where it waits.
#[derive(Debug)]
pub(crate) struct Moored {
    /// None once it could not move, which closed it.
    stream: Option<TcpStream>,
    lane: Option<usize>,
}

impl Moored {
    /// One that was made on this lane.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream: Some(stream), lane: worker::current() }
    }

    /// Whether it waits on this lane.
    pub(crate) fn is_here(&self) -> bool {
        self.lane == worker::current()
    }

    /// Has it wait on this lane. The descriptor stays the same.
    ///
    /// # Errors
    /// The lane cannot wait for it; it is closed.
    pub(crate) fn come_here(&mut self) -> io::Result<()> {
        let stream = self.stream.take().ok_or(ErrorKind::NotConnected)?;
        self.stream = Some(TcpStream::from_std(stream.into_std()?)?);
        self.lane = worker::current();
        Ok(())
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
