//! The sessions of this workspace that were perhaps meant, for a command that finds nothing of its own.

use super::render;
use super::status::{self, first_line};
use crate::client::Door;
use crate::wire::Status;

/// Tells them, and how `command` reaches each.
pub(super) fn name(door: &Door, command: &str) {
    let workspace = door.session.root.display().to_string();
    let all = status::all(&door.places).told.into_iter();
    for status in all.filter(|status| status.workspace == workspace) {
        render::hint(&sentence(&status, &door.session.name, command));
    }
}

fn sentence(status: &Status, name: &str, command: &str) -> String {
    let state = first_line(status);
    let Status { name: theirs, gateway, .. } = status;
    if theirs == name {
        format!(
            "this workspace has a session under the gateway {gateway} ({state}): set GHOST_GATEWAY_URL as it was, or `ghost-browser {command} --all`"
        )
    } else {
        format!(
            "this workspace has a session named {theirs} under the gateway {gateway} ({state}): `ghost-browser {command} --name {theirs}`"
        )
    }
}
