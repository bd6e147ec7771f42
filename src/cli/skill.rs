//! `skill`: what an agent should read first.

use super::args::SkillOptions;
use super::exit::Exit;
use super::output;

const SKILL: &str = include_str!("../../skill/SKILL.md");
const RHAI: &str = include_str!("../../docs/rhai-for-agents.md");

pub(super) fn skill(options: &SkillOptions) -> Exit {
    Exit::after(output::write(if options.rhai { RHAI } else { SKILL }))
}
