//! `status`: what is held, told without starting anything.

use std::collections::BTreeMap;

use super::args::StatusOptions;
use super::call::Call;
use super::exit::Exit;
use super::{others, output, render};
use crate::client::notes::{self, LeftBehind, Noted, Whose};
use crate::client::{Door, Everyone, Live, Silent};
use crate::places::Places;
use crate::wire::{BUILD, Fault, Status, StatusState};

/// Exits 0 whatever the state, since the state is the answer; only output that cannot be written is a failure.
pub(super) fn status(call: &Call, options: &StatusOptions) -> Exit {
    match gather(call, options) {
        Ok(found) => Exit::after(output::write(text(&found, options))),
        Err(fault) => {
            render::error(&fault);
            Exit::OK
        }
    }
}

fn gather(call: &Call, options: &StatusOptions) -> Result<Vec<Status>, Fault> {
    if options.all {
        let Found { told, silent } = all(&call.places());
        silent.iter().for_each(|fault| render::warning(&fault.message));
        return Ok(told);
    }
    let door = call.door()?;
    warn(call, &door);
    let left = notes::look(&door.places, &Whose::Session(&door.session.key));
    let found = door.status();
    if let Ok(Some(status)) = found {
        return Ok(vec![with_debts(status, &left)]);
    }
    let (gateway, workspace) = (call.gateway_name(), door.session.root.display().to_string());
    let mut status = absent(Noted { gateway, workspace, name: door.session.name.clone(), left });
    match found {
        Err(fault) => {
            render::error(&fault);
            status.state = StatusState::Unknown;
        }
        Ok(_) if status.state == StatusState::Stopped => others::name(&door, "status"),
        Ok(_) => {}
    }
    Ok(vec![status])
}

/// What is known of every session.
pub(super) struct Found {
    /// The states of those that have a daemon or owe something.
    pub(super) told: Vec<Status>,
    /// Daemons that do not answer, one fault each.
    pub(super) silent: Vec<Fault>,
}

/// Looks for every session that has a daemon or owes something.
pub(super) fn all(places: &Places) -> Found {
    let mut noted = notes::by_session(places);
    let Everyone { live, silent } = Door::all(places, &[]);
    let unknown: Vec<_> = silent.iter().map(|silent| silent.key.clone()).collect();
    let silent = silent.into_iter().map(|silent| named(silent, &noted)).collect();
    let mut told = Vec::new();
    for Live { files, status } in live {
        let left = files.key().and_then(|key| noted.remove(&key)).map(|noted| noted.left);
        told.push(with_debts(status, &left.unwrap_or_default()));
    }
    told.extend(noted.into_iter().map(|(key, noted)| match unknown.contains(&key) {
        true => Status { state: StatusState::Unknown, ..absent(noted) },
        false => absent(noted),
    }));
    Found { told, silent }
}

/// A fault that names whose daemon it is, where a note tells: it cannot say so itself.
pub(super) fn named(Silent { key, fault }: Silent, noted: &BTreeMap<String, Noted>) -> Fault {
    match noted.get(&key) {
        Some(Noted { workspace, name, .. }) => {
            Fault { message: format!("{workspace} ({name}): {}", fault.message), ..fault }
        }
        None => fault,
    }
}

/// What an earlier daemon left is the next one's to tell of. Where that one holds nothing, it is the state.
fn with_debts(mut status: Status, left: &LeftBehind) -> Status {
    let paid_beside = left.paid_beside(status.pid);
    match paid_beside {
        0 => {}
        1 => status.debts.push(PAID_BESIDE.to_owned()),
        many => status.debts.push(format!("{PAID_BESIDE} ({many} of them)")),
    }
    status.debts.extend(left.unknown.iter().map(Fault::to_string));
    if status.state == StatusState::Stopped {
        status.state = state_of(paid_beside, left);
    }
    status
}

/// The state where nothing is held but debts.
fn state_of(paid: usize, left: &LeftBehind) -> StatusState {
    if paid > 0 {
        StatusState::ReleaseFailed
    } else if left.unknown.is_empty() {
        StatusState::Stopped
    } else {
        StatusState::ReleaseUnknown
    }
}

/// Tells what keeps a session from being found: folders that were not looked into, a gateway that is none.
fn warn(call: &Call, door: &Door) {
    for refusal in door.places.find().refused {
        render::warning(&refusal.message);
    }
    if let Err(fault) = call.check_gateway() {
        render::warning(&fault.message);
    }
}

/// What is owed where the keeper pays alone.
const BEING_PAID: &str = "the daemon is gone or does not answer; the keeper releases the browser once it is gone, and \
                          `ghost-browser stop` waits for that";

/// What is owed beside a daemon that lives.
const PAID_BESIDE: &str = "a browser of an earlier daemon, which its keeper goes on releasing; `ghost-browser stop` \
                           waits for that";

/// The state of a session without a daemon.
fn absent(Noted { gateway, workspace, name, left }: Noted) -> Status {
    let mut debts: Vec<_> = left.unknown.iter().map(Fault::to_string).collect();
    if !left.held.is_empty() {
        debts.insert(0, BEING_PAID.to_owned());
    }
    let state = state_of(left.held.len(), &left);
    Status {
        state,
        gateway,
        pid: None,
        keeper_pid: None,
        since_s: 0.0,
        idle_remaining_s: None,
        scripts: 0,
        calls: 0,
        events_buffered: 0,
        events_dropped: 0,
        workspace,
        name,
        version: BUILD.to_owned(),
        debts,
    }
}

fn text(found: &[Status], options: &StatusOptions) -> String {
    match (options.json, options.all) {
        (true, false) => json(&found[0]),
        (true, true) => json(&found),
        (false, true) if found.is_empty() => "stopped\n".to_owned(),
        (false, _) => found.iter().map(|status| block(status, options.all)).collect(),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("a status is always JSON") + "\n"
}

fn block(status: &Status, is_one_of_many: bool) -> String {
    let mut lines = vec![first_line(status)];
    lines.extend(status.debts.iter().map(|debt| format!("debt: {debt}")));
    if is_one_of_many {
        lines.push(format!("  workspace: {}", status.workspace));
        lines.push(format!("  name: {}", status.name));
    }
    if status.state == StatusState::Connected {
        lines.push(activity(status));
    }
    lines.join("\n") + "\n"
}

pub(super) fn first_line(status: &Status) -> String {
    match status.state {
        StatusState::Connected => format!("connected {}", status.gateway),
        state => word(state).to_owned(),
    }
}

fn word(state: StatusState) -> &'static str {
    match state {
        StatusState::Stopped => "stopped",
        StatusState::Starting => "starting",
        StatusState::Connected => "connected",
        StatusState::Stopping => "stopping",
        StatusState::ReleaseFailed => "release-failed",
        StatusState::ReleaseUnknown => "release-unknown",
        StatusState::Unknown => "unknown",
    }
}

fn activity(status: &Status) -> String {
    let idle = match status.idle_remaining_s {
        Some(left) => format!("idle, released in {left:.0} s"),
        None => format!("scripts running: {}", status.scripts),
    };
    format!("  {idle}; calls: {}", status.calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> Status {
        Status {
            state: StatusState::Connected,
            gateway: "local".to_owned(),
            pid: Some(7),
            keeper_pid: None,
            since_s: 1.5,
            idle_remaining_s: Some(587.4),
            scripts: 0,
            calls: 12,
            events_buffered: 0,
            events_dropped: 0,
            workspace: "/w".to_owned(),
            name: "default".to_owned(),
            version: BUILD.to_owned(),
            debts: vec!["a browser of h.example".to_owned()],
        }
    }

    #[test]
    fn the_first_line_is_the_state_and_a_debt_beside_it_the_next() {
        assert_eq!(
            block(&connected(), false),
            "connected local\ndebt: a browser of h.example\n  idle, released in 587 s; calls: 12\n"
        );
    }

    #[test]
    fn the_state_in_json_is_the_first_word() {
        for state in [
            StatusState::Stopped,
            StatusState::Starting,
            StatusState::Connected,
            StatusState::Stopping,
            StatusState::ReleaseFailed,
            StatusState::ReleaseUnknown,
        ] {
            let status = Status { state, ..connected() };

            let told: serde_json::Value = serde_json::from_str(&json(&status)).unwrap();

            let first = first_line(&status);
            assert_eq!(first.split(' ').next(), told["state"].as_str());
        }
    }
}
