//! The daemon's log: what happened, never what was in it. No script text, no page data, no secret.
//!
//! One bounded file in the state folder: when it is full, it starts over, and the last one is kept beside it.

use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::config::LogLevel;

/// When a log file is full, in bytes.
const FULL: u64 = 1 << 20;

/// Logs what is as important as `level` to `path` from here on.
pub(super) fn start(path: &Path, level: LogLevel) {
    let level = match level {
        LogLevel::Off => return,
        LogLevel::Error => Level::ERROR,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let log = Log { level, path: path.to_owned(), file: Mutex::default() };
    // Only a second daemon in one process could be refused this.
    let _ = tracing::subscriber::set_global_default(log);
}

struct Log {
    level: Level,
    path: PathBuf,
    /// Opened with the first line: a daemon that has nothing to say leaves no file.
    file: Mutex<Option<File>>,
}

impl Log {
    /// Writes a line. A full disk costs the log, not the browser.
    fn write(&self, line: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|data| data.len() >= FULL)) {
            let _ = fs::rename(&self.path, self.path.with_extension("log.1"));
            *file = None;
        }
        if file.is_none() {
            *file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path).ok();
        }
        if let Some(file) = file.as_mut() {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries log URLs and frames: none of theirs is ours to write down.
        *metadata.level() <= self.level && metadata.target().starts_with("ghost_browser")
    }

    fn event(&self, event: &Event<'_>) {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let mut line = Line(format!("{seconds:.3} {} {}", event.metadata().level(), std::process::id()));
        event.record(&mut line);
        line.0.push('\n');
        self.write(&line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.expect("a String takes everything");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_log_is_private_bounded_and_hears_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        let log = Log { level: Level::INFO, path: path.clone(), file: Mutex::default() };

        tracing::subscriber::with_default(log, || {
            tracing::debug!("too fine");
            tracing::error!(target: "rustls", "not ours");
            for _ in 0..20_000 {
                tracing::info!(lease = 1, "{}", "x".repeat(100));
            }
        });

        let kept = [&path, &path.with_extension("log.1")].map(|path| fs::read_to_string(path).unwrap()).concat();
        assert!(kept.len() as u64 <= 2 * FULL + 1024);
        assert!(kept.contains("lease=1") && !kept.contains("too fine") && !kept.contains("not ours"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
