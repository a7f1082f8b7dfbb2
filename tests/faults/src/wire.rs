//! A long cable: each packet arrives at the other end after a delay, including those of connects and acknowledgements.
//!
//! Each end is a TUN device, and this process carries the packets between them. (A relay that accepts connections would
//! complete connects at once, and not every kernel has a delaying queue discipline.) The devices disappear with the
//! runtime that carries the packets. Needs `/dev/net/tun` in addition to the needs of namespaces.

use anyhow::Context;
use common_runtime::descriptor::registered;
use e2e::netns::{Namespace, ip};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Maximum number of packets under way in one direction. Further packets are lost.
const UNDER_WAY_MAX: usize = 4096;

/// Size of the largest packet.
const PACKET_MAX: usize = 64 * 1024;

/// Creates a cable from the calling thread's namespace to `namespace`, and returns the address of its end there. A
/// packet takes `delay` to the other end.
///
/// # Panics
/// Panics outside of a runtime.
pub fn lay(namespace: &Namespace, delay: Duration) -> anyhow::Result<IpAddr> {
    let here = end("10.78.0.1", "10.78.0.2")?;
    let there = namespace.within(|| end("10.78.0.2", "10.78.0.1"))?;
    let watched = |device| registered(device, Interest::READABLE | Interest::WRITABLE).map(Arc::new);
    let (here, there) = (watched(here)?, watched(there)?);
    carry(here.clone(), there.clone(), delay);
    carry(there, here, delay);
    Ok(Ipv4Addr::new(10, 78, 0, 2).into())
}

/// Creates a TUN device in the calling thread's namespace.
fn end(own: &str, peer: &str) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).context("/dev/net/tun")?;
    name(&device).context("a TUN device cannot be made")?;
    ip(&format!("addr add {own} peer {peer} dev far"))?;
    ip("link set far up")?;
    Ok(device)
}

/// Makes the descriptor the device `far`, which carries plain packets.
fn name(device: &OwnedFd) -> io::Result<()> {
    const TUNSETIFF: rustix::ioctl::Opcode = 0x4004_54ca;
    const IFF_TUN: u16 = 1;
    const IFF_NO_PI: u16 = 0x1000;

    /// `struct ifreq` in its full size, with the fields that this ioctl reads.
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        flags: u16,
        rest: [u8; 22],
    }

    let mut request = Request { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    request.name[..3].copy_from_slice(b"far");
    // SAFETY: TUNSETIFF reads a `struct ifreq` of 40 bytes, which `Request` is laid out as, and writes nothing.
    let set = unsafe { rustix::ioctl::Setter::<TUNSETIFF, Request>::new(request) };
    // SAFETY: as above; the descriptor is open.
    unsafe { rustix::ioctl::ioctl(device, set) }?;
    Ok(())
}

/// Carries packets in one direction, for the lifetime of the runtime.
fn carry(from: Arc<AsyncFd<OwnedFd>>, to: Arc<AsyncFd<OwnedFd>>, delay: Duration) {
    let (sender, mut under_way) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY_MAX);
    tokio::spawn(async move {
        let mut buffer = vec![0; PACKET_MAX];
        loop {
            let Ok(mut ready) = from.readable().await else { return };
            match ready.try_io(|device| Ok(rustix::io::read(device.get_ref(), &mut buffer[..])?)) {
                // The queue may be full: then the packet is lost.
                Ok(Ok(length)) => drop(sender.try_send((Instant::now() + delay, buffer[..length].to_vec()))),
                Ok(Err(_)) => return,
                Err(_) => {} // Not ready after all.
            }
        }
    });
    tokio::spawn(async move {
        while let Some((due, packet)) = under_way.recv().await {
            tokio::time::sleep_until(due).await;
            // A device accepts a packet at once, or loses it.
            let _ = rustix::io::write(to.get_ref(), &packet);
        }
    });
}
