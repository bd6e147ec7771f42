//! `skill`: what an agent should read first.

use super::exit::Exit;
use super::output;

const SKILL: &str = include_str!("../../skill/SKILL.md");

pub(super) fn skill() -> Exit {
    Exit::after(output::write(SKILL))
}
