//! Descriptors that are sent over UNIX sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Maximum number of descriptors in one message.
pub(crate) const MAX_DESCRIPTORS: usize = 64;

/// Sends a byte with descriptors.
pub(crate) fn send(socket: impl AsFd, byte: u8, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_all(socket, &[byte], descriptors)
}

/// Sends bytes, of which the first comes with descriptors. The bytes must fit into the buffer of the socket.
pub(crate) fn send_all(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives bytes and the descriptors that come with them. Returns the number of bytes.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_with(socket, buffer, RecvFlags::CMSG_CLOEXEC)
}

/// Receives without waiting.
pub(crate) fn try_receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_with(socket, buffer, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
}

fn receive_with(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, descriptors.flatten().collect()))
}
