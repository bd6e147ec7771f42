//! Starting a Chromium: its pipes, its environment, its process group, and no descriptor of ours.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SigHandler, Signal, signal};

use super::folder::{self, Layout};
use super::gone::Group;
use super::log::{self, Tail};
use super::settings::Settings;

/// Where Chromium expects to read commands, and to write what it has to say.
const READS: RawFd = 3;
const WRITES: RawFd = 4;

/// A running Chromium that nobody has spoken to yet.
pub(super) struct Launched {
    pub(super) reader: OwnedFd,
    pub(super) writer: OwnedFd,
    pub(super) group: Group,
    pub(super) tail: Arc<Tail>,
}

/// Starts `program` in `folder`, which exists.
///
/// # Errors
/// When it could not be started: then no process is left.
pub(super) fn launch(
    program: &Path,
    arguments: Vec<OsString>,
    folder: &Path,
    settings: &Settings,
) -> io::Result<Launched> {
    let (errors, to_errors) = io::pipe()?;
    let tail = log::keep(errors, &settings.log)?;
    let (theirs, writer) = io::pipe()?;
    let (reader, to_us) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stderr(to_errors);
    isolate(&mut command, folder, settings);
    // The originals stay open until the start: so neither 3 nor 4 is free for a descriptor that `spawn` makes itself.
    hand_over(&mut command, above_the_pipes(&theirs)?, above_the_pipes(&to_us)?);
    let launching = folder::lock_for_launch(folder)?;
    // Not waited for here: a dead leader keeps the group's number from being used again.
    let mut leader = command.spawn()?;
    drop(launching);
    let group = Group::led_by(leader.id() as i32).inspect_err(|_| {
        // Nothing but the leader can have been started yet; both fail only where it is gone.
        let _ = leader.kill();
        let _ = leader.wait();
    })?;
    Ok(Launched { reader: reader.into(), writer: OwnedFd::from(writer), group, tail })
}

/// A group of its own, and an environment that names its own folders and holds no secret.
fn isolate(command: &mut Command, folder: &Path, settings: &Settings) {
    let layout = Layout(folder);
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .env_clear()
        .envs(settings.passed_on().map(|(name, value)| (name, value)))
        .env("HOME", layout.home())
        .env("TMPDIR", layout.temporary())
        .env("XDG_CONFIG_HOME", layout.config())
        .env("XDG_CACHE_HOME", layout.cache());
    if let Some(authority) = x_authority(settings) {
        command.env("XAUTHORITY", authority);
    }
}

/// The key to the user's display, where only their home tells its place.
fn x_authority(settings: &Settings) -> Option<OsString> {
    let is_asked = settings.headed && settings.variable("XAUTHORITY").is_none();
    let file = Path::new(settings.variable("HOME").filter(|_| is_asked)?).join(".Xauthority");
    file.exists().then(|| file.into_os_string())
}

/// A copy that `dup2` to 3 or 4 cannot overwrite.
fn above_the_pipes(descriptor: &impl AsFd) -> io::Result<OwnedFd> {
    let copy = fcntl(descriptor.as_fd(), FcntlArg::F_DUPFD_CLOEXEC(WRITES + 1))?;
    // SAFETY: just made, and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Gives the child `reads` as 3, `writes` as 4, default signals, and nothing else of ours.
fn hand_over(command: &mut Command, reads: OwnedFd, writes: OwnedFd) {
    let in_child = move || {
        for (ours, its) in [(&reads, READS), (&writes, WRITES)] {
            // SAFETY: both are descriptors of this process; the copies do not close on exec.
            nix::errno::Errno::result(unsafe { libc::dup2(ours.as_raw_fd(), its) })?;
        }
        close_on_exec_above(WRITES);
        for ended_by in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGXFSZ] {
            // SAFETY: no handler of ours is installed, only the default one.
            unsafe { signal(ended_by, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls that are safe there; nothing is allocated.
    unsafe { command.pre_exec(in_child) };
}

/// A second line of defence: every descriptor of ours closes on exec anyway, but a leaked one would keep a dead
/// daemon's keeper waiting for ever.
fn close_on_exec_above(last: RawFd) {
    #[cfg(target_os = "linux")]
    // SAFETY: it marks descriptors and closes none; kernels before 5.11 refuse, which changes nothing.
    unsafe {
        libc::syscall(libc::SYS_close_range, last + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = last;
}
