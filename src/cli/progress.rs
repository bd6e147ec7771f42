//! Showing that something takes long: a spinner with the time on a terminal, a line every ten seconds elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use super::output;
use crate::wire::Phase;

const FRAMES: [char; 4] = ['|', '/', '-', '\\'];
const TURN: Duration = Duration::from_millis(120);
const LINE_EVERY: Duration = Duration::from_secs(10);
/// A wait that is over by then is not worth a flicker.
const FIRST_TURN: Duration = Duration::from_millis(400);

/// What is shown of a wait.
pub(super) struct Progress {
    style: Style,
    wait: Option<Wait>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Silent,
    Lines,
    Spinner,
}

struct Wait {
    phase: Phase,
    /// What holds it up.
    why: Option<String>,
    since: Instant,
    next: Instant,
    turns: usize,
}

impl Progress {
    pub(super) fn new(is_quiet: bool) -> Self {
        let style = match is_quiet {
            true => Style::Silent,
            false if io::stderr().is_terminal() => Style::Spinner,
            false => Style::Lines,
        };
        Self { style, wait: None }
    }

    /// A wait goes on, or is over.
    pub(super) fn enter(&mut self, phase: Phase, elapsed: Duration, why: Option<String>) {
        if phase == Phase::Running || self.style == Style::Silent {
            return self.clear();
        }
        let now = Instant::now();
        match &mut self.wait {
            Some(wait) => (wait.phase, wait.why) = (phase, why),
            None => {
                let since = now.checked_sub(elapsed).unwrap_or(now);
                let first = match self.style {
                    Style::Spinner => FIRST_TURN,
                    _ => LINE_EVERY,
                };
                self.wait = Some(Wait { phase, why, since, next: now.max(since + first), turns: 0 });
            }
        }
    }

    /// When there is something to show.
    pub(super) fn next(&self) -> Option<Instant> {
        self.wait.as_ref().map(|wait| wait.next)
    }

    /// Shows it.
    pub(super) fn show(&mut self) {
        if let Some(wait) = &mut self.wait {
            output::complain(&wait.text(self.style));
            let every = match self.style {
                Style::Spinner => TURN,
                _ => LINE_EVERY,
            };
            wait.next = Instant::now() + every;
            wait.turns += 1;
        }
    }

    /// The wait is over: what is said next stands on a clean line.
    pub(super) fn clear(&mut self) {
        if let Some(wait) = self.wait.take()
            && self.style == Style::Spinner
            && wait.turns > 0
        {
            output::complain("\r\x1b[K");
        }
    }
}

impl Wait {
    fn text(&self, style: Style) -> String {
        let seconds = self.since.elapsed().as_secs();
        let mut doing = doing(self.phase).to_owned();
        if let Some(why) = &self.why {
            doing = format!("{doing} ({why}; trying again)");
        }
        match style {
            Style::Spinner => {
                let frame = FRAMES[self.turns % FRAMES.len()];
                format!("\r{frame} {doing}: {seconds} s (Ctrl-C cancels)\x1b[K")
            }
            _ => format!("{doing}: {seconds} s so far (Ctrl-C cancels)\n"),
        }
    }
}

fn doing(phase: Phase) -> &'static str {
    match phase {
        Phase::Releasing => "releasing an earlier browser",
        Phase::Allocating => "waiting for a browser",
        Phase::Connecting => "connecting to the browser",
        Phase::Running | Phase::Unknown => "waiting",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(style: Style) -> Progress {
        Progress { style, wait: None }
    }

    #[test]
    fn a_line_is_due_only_once_a_wait_has_taken_ten_seconds() {
        let mut progress = progress(Style::Lines);
        let before = Instant::now();

        progress.enter(Phase::Allocating, Duration::from_secs(4), None);

        let due = progress.next().unwrap() - before;
        assert!((5..=6).contains(&due.as_secs()), "{due:?}");
        let wait = progress.wait.as_ref().unwrap();
        assert_eq!(wait.text(Style::Lines), "waiting for a browser: 4 s so far (Ctrl-C cancels)\n");
    }

    #[test]
    fn what_holds_a_wait_up_is_told_with_it() {
        let mut progress = progress(Style::Lines);

        progress.enter(Phase::Allocating, Duration::ZERO, Some("gateway allocation failed: HTTP 503".into()));

        let wait = progress.wait.as_ref().unwrap();
        let expected = "waiting for a browser (gateway allocation failed: HTTP 503; trying again): 0 s so far";
        assert!(wait.text(Style::Lines).starts_with(expected), "{}", wait.text(Style::Lines));
    }

    #[test]
    fn another_phase_keeps_the_clock_of_the_wait() {
        let mut progress = progress(Style::Lines);
        progress.enter(Phase::Allocating, Duration::from_secs(9), None);
        let due = progress.next();

        progress.enter(Phase::Connecting, Duration::ZERO, None);

        assert_eq!(progress.next(), due);
    }

    #[test]
    fn nothing_is_due_when_quiet_or_once_the_script_runs() {
        let mut quiet = progress(Style::Silent);
        quiet.enter(Phase::Allocating, Duration::ZERO, None);
        assert_eq!(quiet.next(), None);

        let mut over = progress(Style::Lines);
        over.enter(Phase::Allocating, Duration::ZERO, None);
        over.enter(Phase::Running, Duration::ZERO, None);
        assert_eq!(over.next(), None);
    }
}
