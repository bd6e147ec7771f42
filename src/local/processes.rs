//! The processes of this machine, as far as a browser's end has to know them.

use std::io;

/// One process, as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) group: i32,
    /// Its session; 0 where the system does not tell.
    pub(super) session: i32,
    /// When it started, in the kernel's ticks; 0 where the system does not tell.
    pub(super) started: u64,
    /// Ended, and not yet waited for.
    pub(super) is_zombie: bool,
    /// The program's name, perhaps cut short.
    pub(super) name: String,
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;

    use super::{Process, io};

    pub(in crate::local) fn all() -> io::Result<Vec<Process>> {
        let numbers = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        // One that ended meanwhile is left out.
        Ok(numbers.filter_map(|pid| one(pid).ok()).collect())
    }

    pub(in crate::local) fn one(pid: i32) -> io::Result<Process> {
        let stat = fs::read(format!("/proc/{pid}/stat"))?;
        parse(pid, &String::from_utf8_lossy(&stat)).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// `pid (name) state ppid pgrp session …`, the start time being the 22nd; a name may hold anything.
    fn parse(pid: i32, stat: &str) -> Option<Process> {
        let (head, tail) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        Some(Process {
            pid,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
            name: head.split_once('(')?.1.to_owned(),
        })
    }

    /// The arguments, each ended by a NUL; none for a process that is gone.
    pub(in crate::local) fn arguments(pid: i32) -> Vec<u8> {
        fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
    }

    #[cfg(test)]
    mod tests {
        use super::parse;

        #[test]
        fn a_name_with_brackets_and_blanks_is_one_field() {
            let stat = "7 (a) Z (b) S 1 5 6 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0";

            let process = parse(7, stat).unwrap();

            assert_eq!((process.group, process.session, process.started), (5, 6, 4242));
            assert_eq!(process.name, "a) Z (b");
            assert!(!process.is_zombie);
        }
    }
}

/// Weaker than Linux: `ps` tells neither session nor exact start, so only the group's number stands for a browser.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::process::Command;

    use super::{Process, io};

    pub(in crate::local) fn all() -> io::Result<Vec<Process>> {
        let listing = ps(&["-axo", "pid=,pgid=,stat=,comm="])?;
        Ok(listing.lines().filter_map(parse).collect())
    }

    pub(in crate::local) fn one(pid: i32) -> io::Result<Process> {
        let line = ps(&["-o", "pid=,pgid=,stat=,comm=", "-p", &pid.to_string()])?;
        parse(&line).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn parse(line: &str) -> Option<Process> {
        let mut fields = line.split_ascii_whitespace();
        Some(Process {
            pid: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            session: 0,
            started: 0,
            is_zombie: fields.next()?.starts_with('Z'),
            name: fields.collect::<Vec<_>>().join(" "),
        })
    }

    /// The arguments, each ended by a NUL where a blank stood.
    pub(in crate::local) fn arguments(pid: i32) -> Vec<u8> {
        let line = ps(&["-ww", "-o", "command=", "-p", &pid.to_string()]);
        line.unwrap_or_default().trim().replace(' ', "\0").into_bytes()
    }

    fn ps(arguments: &[&str]) -> io::Result<String> {
        let output = Command::new("/bin/ps").args(arguments).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

pub(super) use system::{all, arguments, one};
