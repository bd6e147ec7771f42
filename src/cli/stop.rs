//! `stop`: every browser released, and the truth about each that is not.

use super::args::StopOptions;
use super::call::Call;
use super::exit::Exit;
use super::{others, output, render, status};
use crate::client::notes::{self, Living, Whose, both, unconfirmed};
use crate::client::{Connection, Door, Everyone, Live, Silent, stale};
use crate::places::Places;
use crate::wire::{Fault, Status, Stopped};

pub(super) fn stop(call: &Call, options: &StopOptions) -> Exit {
    let exit = match options.all {
        true => stop_all(call),
        false => stop_one(call),
    };
    exit.unwrap_or_else(|fault| {
        render::error(&fault);
        Exit::of(&fault)
    })
}

fn stop_one(call: &Call) -> Result<Exit, Fault> {
    let door = call.door()?;
    let found = door.find().map_err(unconfirmed)?;
    let told = found.map(|connection| connection.stop().map_err(unconfirmed)).transpose()?.flatten();
    // The keeper of an earlier daemon may still be paying, whether one lives or not.
    let left = door.settle();
    if told.is_none() {
        stale::clear(&door.places, Some(&door.session.key));
        if left == Stopped::default() {
            refuse_blindness(&door)?;
            others::name(&door, "stop");
        }
    }
    report(&both(told.unwrap_or_default(), left))
}

/// Where no state folder could be looked into, nothing is known.
fn refuse_blindness(door: &Door) -> Result<(), Fault> {
    let mut found = door.places.find();
    match found.refused.pop() {
        Some(refusal) if found.folders.is_empty() => Err(refusal),
        _ => Ok(()),
    }
}

pub(super) fn report(stopped: &Stopped) -> Result<Exit, Fault> {
    stopped.unconfirmed.iter().for_each(render::error);
    if stopped.unconfirmed.is_empty() || stopped.released > 0 {
        output::write(sentence(stopped.released) + "\n")?;
    }
    Ok(Exit::of_stop(stopped))
}

fn sentence(released: u32) -> String {
    match released {
        0 => "browser already stopped".to_owned(),
        1 => "released browser".to_owned(),
        many => format!("released {many} browsers"),
    }
}

fn stop_all(call: &Call) -> Result<Exit, Fault> {
    let places = call.places();
    let Everyone { live, silent } = Door::all(&places, &[]);
    // What a suspended daemon holds is neither released nor a keeper's to release.
    let unanswered: Vec<_> = silent.iter().map(|silent| silent.key.clone()).collect();
    let mut exit = tell_silent(silent, &places);
    let mut released = 0;
    for live in live {
        match stop_live(&live) {
            Ok(stopped) => {
                released += stopped.released;
                exit = exit.or(tell_one(&live.status, &stopped)?);
            }
            Err(fault) => {
                render::error(&fault);
                exit = exit.or(Exit::of(&fault));
            }
        }
    }
    let settled = settle_all(&places, &unanswered);
    stale::clear(&places, None);
    settled.unconfirmed.iter().for_each(render::error);
    if released + settled.released == 0 && exit == Exit::OK && settled.unconfirmed.is_empty() {
        output::write(sentence(0) + "\n")?;
    } else if settled.released > 0 {
        output::write(sentence(settled.released) + "\n")?;
    }
    Ok(exit.or(Exit::of_stop(&settled)))
}

fn tell_silent(silent: Vec<Silent>, places: &Places) -> Exit {
    let noted = notes::by_session(places);
    silent.into_iter().fold(Exit::OK, |exit, silent| {
        let fault = unconfirmed(status::named(silent, &noted));
        render::error(&fault);
        exit.or(Exit::of(&fault))
    })
}

/// What daemons that are gone left. Some stay, since a release of theirs failed or somebody else runs a script there.
fn settle_all(places: &Places, unanswered: &[String]) -> Stopped {
    let left = notes::find(places, &Whose::AllBut(unanswered));
    if left.is_empty() {
        return Stopped::default();
    }
    let living = |live: Live| Some(Living { key: live.files.key()?, pid: live.status.pid? });
    let living: Vec<_> = Door::all(places, unanswered).live.into_iter().filter_map(living).collect();
    left.settle_beside(&living)
}

/// One that ended meanwhile has released nothing under our eyes; its notes tell the rest.
fn stop_live(live: &Live) -> Result<Stopped, Fault> {
    let stopped = match Connection::open(&live.files)? {
        Some(connection) => connection.stop()?,
        None => None,
    };
    Ok(stopped.unwrap_or_default())
}

fn tell_one(status: &Status, stopped: &Stopped) -> Result<Exit, Fault> {
    stopped.unconfirmed.iter().for_each(render::error);
    if stopped.released > 0 {
        let (done, place) = (sentence(stopped.released), &status.workspace);
        output::write(format!("{done}: {place} ({})\n", status.name))?;
    }
    Ok(Exit::of_stop(stopped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_released_is_told_in_one_line() {
        assert_eq!(sentence(0), "browser already stopped");
        assert_eq!(sentence(1), "released browser");
        assert_eq!(sentence(2), "released 2 browsers");
    }
}
