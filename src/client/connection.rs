//! One connection: the peer's user checked, `Hello` exchanged, then requests and replies.

use std::io::{self, BufReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::interrupt;
use crate::wire::{BUILD, Fault, FaultCode, PROTOCOL, Reply, Request, Status, Stopped, read_frame, write_frame};
use crate::workspace::SessionFiles;

/// How long a daemon may take to say `Hello`: it does so at once, unless it is suspended or the machine is overrun.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// How long a daemon with nothing left to do may take to end: its clients read their last words.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The longest wait in one piece: a signal in the moment before it does not end it.
const A_WHILE: Duration = Duration::from_secs(1);

/// What to do with a daemon that does not answer.
pub(super) const SUSPENDED: &str =
    "is it suspended? `kill -CONT` wakes it; once it is ended by hand, its keeper releases the browser";

/// A daemon that answered `Hello`.
pub struct Connection {
    stream: BufReader<UnixStream>,
    peer: Peer,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// Something can be read, or the connection has ended.
    Reply,
    /// Something can be read from the other one.
    Other,
    /// The time has come, or a signal, or neither and a while is over.
    Time,
}

/// Who answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// The version of its protocol.
    pub protocol: u32,
    /// Its build.
    pub build: String,
    /// Its process.
    pub pid: u32,
}

impl Peer {
    /// Whether more than the frozen requests can be asked of it.
    pub fn is_ours(&self) -> bool {
        self.protocol == PROTOCOL && self.build == BUILD
    }
}

impl Connection {
    /// Connects to the daemon behind `files`; `None` where none lives.
    ///
    /// # Errors
    /// [`FaultCode::NoBrowser`] for a socket that cannot be reached or is not of this user, and for a daemon that does not
    /// answer.
    pub fn open(files: &SessionFiles) -> Result<Option<Self>, Fault> {
        Self::open_within(files, PATIENCE)
    }

    /// [`Connection::open`], with an answer in that time.
    pub(super) fn open_within(files: &SessionFiles, patience: Duration) -> Result<Option<Self>, Fault> {
        let address = files.socket_address()?;
        let stream = match UnixStream::connect(address.path()) {
            Ok(stream) => stream,
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) => return Err(unreachable(&error)),
        };
        if peer_uid(&stream).ok() != Some(nix::unistd::getuid().as_raw()) {
            return Err(foreign_socket(files));
        }
        Self::greet(stream, files, patience)
    }

    /// Exchanges `Hello`; `None` for a daemon that ended instead.
    fn greet(stream: UnixStream, files: &SessionFiles, patience: Duration) -> Result<Option<Self>, Fault> {
        let mut connection = Self { stream: BufReader::new(stream), peer: Peer::default() };
        let hello = Request::Hello { protocol: PROTOCOL, build: BUILD.to_owned() };
        if connection.send(&hello).is_err() {
            return Ok(None);
        }
        if !connection.answers_within(patience) {
            return Err(silent(files, patience));
        }
        let Ok(Some(Reply::Hello { protocol, build, pid })) = connection.receive() else {
            return Ok(None);
        };
        connection.peer = Peer { protocol, build, pid };
        Ok(Some(connection))
    }

    fn answers_within(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.wait(Some(until), None) != Woken::Reply {
            if Instant::now() >= until {
                return false;
            }
        }
        true
    }

    /// Who answered.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Asks for the state; `None` when the daemon ended instead.
    ///
    /// # Errors
    /// What the daemon refused it with.
    pub fn status(mut self) -> Result<Option<Status>, Fault> {
        self.ask(&Request::Status, |reply| match reply {
            Reply::Status(status) => Some(*status),
            _ => None,
        })
    }

    /// Has every browser released and the daemon ended, however long that takes; `None` when the daemon ended
    /// without a word on it.
    ///
    /// # Errors
    /// What the daemon refused it with.
    pub fn stop(mut self) -> Result<Option<Stopped>, Fault> {
        let stopped = self.release()?;
        self.wait_for_end();
        Ok(stopped)
    }

    /// Has every browser released by a daemon that goes on: this connection has variables there.
    ///
    /// # Errors
    /// What the daemon refused it with.
    pub fn release(&mut self) -> Result<Option<Stopped>, Fault> {
        self.ask(&Request::Stop, |reply| match reply {
            Reply::Stopped(stopped) => Some(*stopped),
            _ => None,
        })
    }

    /// Reads until the daemon closes: then it has taken its socket away, or goes on for somebody else.
    fn wait_for_end(&mut self) {
        let until = Instant::now() + END_LIMIT;
        let left = || until.saturating_duration_since(Instant::now());
        while self.answers_within(left()) && matches!(self.receive(), Ok(Some(_))) {}
    }

    fn ask<T>(&mut self, request: &Request, pick: impl Fn(Reply) -> Option<T>) -> Result<Option<T>, Fault> {
        if self.send(request).is_err() {
            return Ok(None);
        }
        // A connection that breaks tells as much as one that ends: the daemon is gone.
        while let Ok(Some(reply)) = self.next()? {
            if let Reply::Refused(fault) = reply {
                return Err(fault);
            }
            if let Some(answer) = pick(reply) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Waits for a reply, for as long as nobody tells us to end: a daemon that is suspended sends none.
    fn next(&mut self) -> Result<io::Result<Option<Reply>>, Fault> {
        while self.wait(None, None) != Woken::Reply {
            if interrupt::is_raised() {
                return Err(interrupted());
            }
        }
        Ok(self.receive())
    }

    pub(super) fn send(&mut self, request: &Request) -> io::Result<()> {
        write_frame(self.stream.get_mut(), request)
    }

    pub(super) fn receive(&mut self) -> io::Result<Option<Reply>> {
        read_frame(&mut self.stream)
    }

    /// Waits until something can be read, here or from `other`, or until the time has come, but no longer than a while.
    pub(super) fn wait(&self, until: Option<Instant>, other: Option<BorrowedFd<'_>>) -> Woken {
        if !self.stream.buffer().is_empty() {
            return Woken::Reply;
        }
        let mut wanted = vec![PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        wanted.extend(other.map(|other| PollFd::new(other, PollFlags::POLLIN)));
        let a_while = Instant::now() + A_WHILE;
        match poll(&mut wanted, timeout(until.map_or(a_while, |until| until.min(a_while)))) {
            Ok(0) | Err(Errno::EINTR) => Woken::Time,
            Ok(_) if wanted[0].any() == Some(false) => Woken::Other,
            Ok(_) | Err(_) => Woken::Reply,
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
}

fn timeout(until: Instant) -> PollTimeout {
    let left = until.saturating_duration_since(Instant::now());
    // Rounded up, so that a wait never ends just before its time and spins.
    let millis = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

/// Whether nobody listens: no file, or one that a dead daemon left.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

#[cfg(target_os = "linux")]
fn peer_uid(stream: &UnixStream) -> nix::Result<u32> {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
    getsockopt(stream, PeerCredentials).map(|peer| peer.uid())
}

#[cfg(not(target_os = "linux"))]
fn peer_uid(stream: &UnixStream) -> nix::Result<u32> {
    nix::unistd::getpeereid(stream).map(|(uid, _)| uid.as_raw())
}

fn interrupted() -> Fault {
    Fault::new(FaultCode::Cancelled, "interrupted before the daemon answered")
        .hint("a release goes on without us; `ghost-browser status` tells")
}

fn unreachable(error: &io::Error) -> Fault {
    Fault::new(FaultCode::NoBrowser, "cannot connect to this session's daemon").caused_by(error)
}

fn silent(files: &SessionFiles, waited: Duration) -> Fault {
    let socket = files.socket.display();
    let message = format!("this session's daemon does not answer at {socket} (waited {:.1} s)", waited.as_secs_f64());
    Fault::new(FaultCode::NoBrowser, message).hint(SUSPENDED)
}

fn foreign_socket(files: &SessionFiles) -> Fault {
    Fault::new(FaultCode::NoBrowser, format!("another user answers at {}: nothing was sent", files.socket.display()))
        .hint("set GHOST_BROWSER_RUNTIME_DIR to a folder of your own with mode 0700")
}
