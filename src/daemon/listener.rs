//! The daemon's socket: bound before any browser is asked for, so that whoever comes second waits for the same one.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::sys::socket::{getsockopt, sockopt};

use super::desk::VisitorId;
use super::lock::Name;
use super::visitor::{self, House};
use crate::wire::{Fault, FaultCode};
use crate::workspace::SessionFiles;

/// Binds the socket. A stale one may be removed, because the caller holds the lock.
pub(super) fn bind(files: &SessionFiles) -> Result<(UnixListener, Name), Fault> {
    let address = files.socket_address()?;
    let bound = match fs::remove_file(&files.socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(address.path()),
    };
    let named = bound.and_then(|listener| Ok((listener, Name::now(&files.socket)?)));
    named.map_err(|error| {
        Fault::new(FaultCode::NoBrowser, format!("the daemon cannot bind its socket in {}", files.folder.display()))
            .caused_by(&error)
    })
}

/// Serves every client on a thread of its own, for as long as the process lives.
pub(super) fn serve(listener: UnixListener, house: Arc<House>) -> io::Result<()> {
    let accept = move || {
        let next = AtomicU64::new(1);
        for stream in listener.incoming() {
            // Out of descriptors, or a client that hung up at once: the next one may fare better.
            let Ok(stream) = stream else {
                thread::yield_now();
                continue;
            };
            if !is_ours(&stream) {
                continue;
            }
            let (house, id) = (house.clone(), VisitorId(next.fetch_add(1, Ordering::Relaxed)));
            let visit = move || visitor::receive(stream, id, &house);
            // Without a thread there is no answer either: the client sees the connection end and says so.
            let _ = thread::Builder::new().name("visitor".to_owned()).stack_size(256 << 10).spawn(visit);
        }
    };
    thread::Builder::new().name("listener".to_owned()).stack_size(128 << 10).spawn(accept).map(drop)
}

/// Whether the peer is the user that the daemon belongs to.
fn is_ours(stream: &UnixStream) -> bool {
    let own = nix::unistd::getuid().as_raw();
    #[cfg(target_os = "linux")]
    return getsockopt(stream, sockopt::PeerCredentials).is_ok_and(|peer| peer.uid() == own);
    #[cfg(not(target_os = "linux"))]
    return getsockopt(stream, sockopt::LocalPeerCred).is_ok_and(|peer| peer.uid() == own);
}
