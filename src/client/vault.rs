//! The caller's secrets: which ones a script may use, and where their values come from.
//!
//! The daemon asks by name and decides nothing. A value comes from the caller's environment, else from the program that
//! `GHOST_BROWSER_SECRET_CMD` names; it leaves this process only as an answer to its own daemon, and the token never does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::config::{AllowedSecret, Settings};
use crate::secret::Secret;
use crate::wire::{Fault, FaultCode, Granted, SecretAnswer};

/// A shorter one would be taken out of innocent text.
const SHORTEST: usize = 6;

/// The longest value, in bytes.
const LONGEST: usize = 64 << 10;

const LIST: &str = "GHOST_BROWSER_SECRETS";
const COMMAND: &str = "GHOST_BROWSER_SECRET_CMD";

/// What the caller lets its scripts use.
pub(super) struct Vault<'s> {
    settings: &'s Settings,
    variable: &'s dyn Fn(&str) -> Option<OsString>,
}

/// What looking for a secret came to.
pub(super) enum Found {
    /// The answer.
    Answer(SecretAnswer),
    /// A program was asked for it.
    Asked(Errand),
}

impl<'s> Vault<'s> {
    /// The vault of a caller with these settings, whose environment is `variable`.
    pub(super) fn new(settings: &'s Settings, variable: &'s dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { settings, variable }
    }

    /// Looks for the secret `name`.
    pub(super) fn look(&self, name: &str) -> Found {
        self.try_look(name).unwrap_or_else(|fault| Found::Answer(SecretAnswer::Refused(fault)))
    }

    fn try_look(&self, name: &str) -> Result<Found, Fault> {
        self.allowed(name)?;
        if let Some(value) = (self.variable)(name).filter(|value| !value.is_empty()) {
            let value = value.into_string().map_err(|_| denied(name, "its value is not UTF-8"))?;
            return Ok(Found::Answer(self.answer(name, value)));
        }
        match &self.settings.secrets.command {
            Some(program) => {
                let mut command = Command::new(program);
                command.arg(name).stdin(Stdio::null()).stdout(Stdio::piped());
                // A group of its own, so that what it starts can be ended with it; where there is a terminal it may ask
                // its person there, which only the terminal's own group can.
                if File::open("/dev/tty").is_err() {
                    command.process_group(0);
                }
                let child =
                    command.spawn().map_err(|error| denied(name, &format!("its program cannot be run: {error}")))?;
                Ok(Found::Asked(Errand::new(name, child)))
            }
            None => Err(denied(name, "there is no such environment variable")
                .hint(format!("set {name}, or {COMMAND} to a program that prints it"))),
        }
    }

    fn allowed(&self, name: &str) -> Result<&AllowedSecret, Fault> {
        // The list may not lend out what is ours, whoever wrote it.
        if name == "APIFY_TOKEN" || name.starts_with("GHOST_") {
            return Err(denied(name, "scripts never get it"));
        }
        let allowed = self.settings.secrets.allowed.iter().find(|allowed| allowed.name == name);
        allowed.ok_or_else(|| {
            denied(name, &format!("it is not listed in {LIST}"))
                .hint(format!("let scripts use it with {LIST}={name}, or {LIST}={name}@https://shop.example"))
        })
    }

    /// The answer that gives a value, if it may be given.
    pub(super) fn answer(&self, name: &str, value: String) -> SecretAnswer {
        let value = Secret::new(value);
        match self.check(name, &value) {
            Ok(origin) => SecretAnswer::Granted(Granted { value, origin }),
            Err(fault) => SecretAnswer::Refused(fault),
        }
    }

    fn check(&self, name: &str, value: &Secret) -> Result<Option<String>, Fault> {
        let allowed = self.allowed(name)?;
        let length = value.expose().len();
        if length < SHORTEST {
            return Err(denied(
                name,
                &format!("its value has under {SHORTEST} bytes, too few to be kept out of output"),
            ));
        }
        if length > LONGEST {
            return Err(denied(name, &format!("its value has {length} bytes; the most is {LONGEST}")));
        }
        let tokens = [self.settings.token.clone(), self.settings.effective_token()];
        let holds = |token: &Secret| !token.expose().is_empty() && value.expose().contains(token.expose());
        if tokens.iter().flatten().any(holds) {
            return Err(denied(name, "its value holds the token, which scripts never get"));
        }
        Ok(allowed.origin.clone())
    }
}

/// A program that was asked for a secret. It ends with this at the latest, and so does what it started.
pub(super) struct Errand {
    /// Whose value it prints.
    name: String,
    /// `None` once it was waited for.
    child: Option<Child>,
    output: ChildStdout,
    bytes: Vec<u8>,
}

impl Errand {
    fn new(name: &str, mut child: Child) -> Self {
        let output = child.stdout.take().expect("its output is a pipe");
        Self { name: name.to_owned(), child: Some(child), output, bytes: Vec::new() }
    }

    /// Whose value it prints.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads what is there; the answer once that was all.
    pub(super) fn go_on(&mut self, vault: &Vault<'_>) -> Option<SecretAnswer> {
        let mut piece = [0; 4096];
        match self.output.read(&mut piece) {
            Ok(0) => Some(self.answer(vault).unwrap_or_else(SecretAnswer::Refused)),
            Ok(length) => {
                self.bytes.extend_from_slice(&piece[..length]);
                let is_over = self.bytes.len() > LONGEST + 2;
                is_over.then(|| SecretAnswer::Refused(denied(&self.name, "its program prints too much")))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) => {
                Some(SecretAnswer::Refused(denied(&self.name, &format!("its program cannot be read: {error}"))))
            }
        }
    }

    fn answer(&mut self, vault: &Vault<'_>) -> Result<SecretAnswer, Fault> {
        let status = self.wait().map_err(|error| denied(&self.name, &format!("its program is lost: {error}")))?;
        if !status.success() {
            return Err(denied(&self.name, &format!("its program failed ({status})"))
                .hint(format!("try it by hand: \"${COMMAND}\" {}", self.name)));
        }
        let mut value = String::from_utf8(std::mem::take(&mut self.bytes))
            .map_err(|_| denied(&self.name, "its program prints no UTF-8 text"))?;
        // A program that prints a line means the line without its end.
        if value.ends_with('\n') {
            value.pop();
            if value.ends_with('\r') {
                value.pop();
            }
        }
        Ok(vault.answer(&self.name, value))
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        let child = self.child.as_mut().expect("it is waited for once, when its output has ended");
        let status = child.wait()?;
        self.child = None;
        Ok(status)
    }
}

impl AsFd for Errand {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        // The number of one that was waited for may be another's by now.
        if let Some(mut child) = self.child.take() {
            end_group(&child);
            // One in our own group is ended alone; how it ended tells nobody anything.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ends a program and what it started: a child of it would live on with the caller's standard error.
fn end_group(leader: &Child) {
    let Ok(group) = leader.id().try_into() else { return };
    // Nobody is left of it where all have ended.
    let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
}

fn denied(name: &str, why: &str) -> Fault {
    Fault::new(FaultCode::Denied, format!("the secret `{name}` cannot be used: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(list: &str) -> Settings {
        let (list, token) = (list.to_owned(), "the-token-itself");
        Settings::from_env(&move |name| match name {
            LIST => Some(list.clone().into()),
            "APIFY_TOKEN" => Some(token.into()),
            _ => None,
        })
        .unwrap()
    }

    fn refusal(list: &str, name: &str, value: &str) -> String {
        let (settings, value) = (settings(list), value.to_owned());
        let variable = move |_: &str| Some(OsString::from(value.clone()));
        match Vault::new(&settings, &variable).look(name) {
            Found::Answer(SecretAnswer::Refused(fault)) => fault.message,
            _ => panic!("{name} was told"),
        }
    }

    #[test]
    fn a_listed_secret_is_told_with_its_origin() {
        let settings = settings("A, SHOP_PW@https://shop.example/login");
        let variable = |name: &str| Some(OsString::from(format!("value of {name}")));

        let Found::Answer(SecretAnswer::Granted(granted)) = Vault::new(&settings, &variable).look("SHOP_PW") else {
            panic!("it was refused")
        };

        assert_eq!(granted.value.expose(), "value of SHOP_PW");
        assert_eq!(granted.origin.as_deref(), Some("https://shop.example"));
    }

    #[test]
    fn what_is_not_listed_is_refused_and_the_list_is_named() {
        assert!(refusal("A", "B", "long enough").contains("GHOST_BROWSER_SECRETS"));
        assert!(refusal("", "PATH", "/usr/bin:/bin").contains("GHOST_BROWSER_SECRETS"));
    }

    #[test]
    fn the_token_is_never_told_under_any_name_or_inside_of_anything() {
        let list = "APIFY_TOKEN,GHOST_BROWSER_SECRETS,GHOST_X,OTHER";
        for (name, value) in [
            ("APIFY_TOKEN", "the-token-itself"),
            ("GHOST_X", "whatever it is"),
            ("OTHER", "the-token-itself"),
            ("OTHER", "https://x.example/?token=the-token-itself&more"),
        ] {
            assert!(refusal(list, name, value).contains("never get"), "{name}");
        }
    }

    #[test]
    fn a_value_that_would_hit_innocent_text_is_refused() {
        assert!(refusal("A", "A", "12345").contains("under 6 bytes"));
        assert!(refusal("A", "A", &"x".repeat(LONGEST + 1)).contains("the most is"));
    }
}
