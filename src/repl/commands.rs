//! The commands of the prompt: words that begin with a colon.

use std::collections::BTreeMap;

use super::session::Session;
use crate::script::protocol;
use crate::wire::{Fault, FaultCode, StatusState};

/// What can be typed.
pub(super) const NAMES: &[&str] = &[":help", ":status", ":stop", ":events", ":protocol"];

const HELP: &str = "\
Type a line of Rhai; what is not complete goes on with the next line. A value is shown unless `;` ends the line.
What a line defines is there for the next one, until you leave.

  :help            this
  :status          the state of the session, as `ghost-browser status` tells it
  :stop            release the browser; variables and functions stay, and the next line takes a new browser
  :events          show the events that came since the last look, and take them out of the buffer
  :protocol NAME   the commands of a CDP domain, or the parameters of a command

  Tab completes, Ctrl-C ends the line that runs, Ctrl-D leaves and keeps the browser.
  A line that begins with a space is not kept in the history.
";

/// The buffered events, one on a line.
const EVENTS: &str = r#"{
    let events = drain_events();
    for event in events {
        let params = event.params.to_json();
        if params.len() > 160 { params = params.sub_string(0, 160) + "…"; }
        print(event.method + " " + params);
    }
    if events.is_empty() { print("no events"); }
};"#;

/// Does what `command` says, without its colon.
pub(super) fn obey(session: &mut Session, command: &str, number: u32) {
    let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    match (name, argument.trim()) {
        ("help", "") => session.print(HELP),
        ("status", "") => session.frame.status(),
        ("stop", "") => drop(session.stop()),
        ("events", "") => events(session, number),
        ("protocol", name) => reference(session, name),
        _ => session.fail(&unknown(command)),
    }
}

/// Shows what came; a browser is not worth taking for it.
fn events(session: &mut Session, number: u32) {
    match session.means.door.status() {
        Ok(Some(status)) if status.state == StatusState::Connected => session.run(EVENTS, number),
        Ok(_) => session.print("no browser, and so no events\n"),
        Err(fault) => session.fail(&fault),
    }
}

fn reference(session: &mut Session, name: &str) {
    match describe(name) {
        Ok(text) => session.print(&text),
        Err(fault) => session.fail(&fault),
    }
}

/// A command with its parameters, the commands of a domain, or all domains.
fn describe(name: &str) -> Result<String, Fault> {
    if let Some(parameters) = protocol::parameters(name) {
        let parameters: Vec<_> = parameters.collect();
        return Ok(match parameters.is_empty() {
            true => format!("{name} takes no parameters\n"),
            false => format!("{name} takes {}\n", parameters.join(", ")),
        });
    }
    let mut domains: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (domain, command) in protocol::commands().filter_map(|command| command.split_once('.')) {
        domains.entry(domain).or_default().push(command);
    }
    match domains.get(name) {
        Some(commands) => Ok(commands.iter().map(|command| format!("{name}.{command}\n")).collect()),
        None if name.is_empty() => Ok(domains.keys().map(|domain| format!("{domain}\n")).collect()),
        None => Err(unheard_of(name)),
    }
}

fn unheard_of(name: &str) -> Fault {
    let fault = Fault::new(FaultCode::Usage, format!("no command or domain {name} is known"));
    match protocol::command_hint(name, false) {
        Some(hint) => fault.hint(hint),
        None => fault.hint("`:protocol` alone lists the domains"),
    }
}

fn unknown(command: &str) -> Fault {
    Fault::new(FaultCode::Usage, format!("there is no command `:{}`", command.trim())).hint("`:help` lists them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_a_domain_and_all_domains_are_told_and_a_slip_gets_a_hint() {
        assert!(describe("Page.navigate").unwrap().starts_with("Page.navigate takes url, "));
        assert_eq!(describe("Page.disable").unwrap(), "Page.disable takes no parameters\n");
        assert!(describe("Page").unwrap().contains("Page.reload\n"));
        assert!(describe("").unwrap().contains("Target\n"));
        assert_eq!(describe("Page.navigat").unwrap_err().hint.as_deref(), Some("did you mean `Page.navigate`?"));
    }
}
