//! What the documents say of the language is so: each line of `docs/rhai-for-agents.md` prints what stands behind it.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use support::{FakeGateway, Said, Sandbox};

const LONGEST: usize = 150;

/// What stands behind a line.
#[derive(Debug)]
enum Claim {
    Prints(String),
    FailsWith(String),
}

/// One line with all that it needs before it.
struct Example {
    script: String,
    claim: Claim,
}

#[test]
fn every_line_of_the_language_page_does_what_it_says() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let page = page();
    let examples = examples(&page);
    sandbox.script(";").quietly();

    let wrong: Vec<_> =
        examples.iter().filter_map(|example| broken(example, &sandbox.script(&example.script))).collect();

    assert!(examples.len() > 80, "{} examples", examples.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(page.lines().count() <= LONGEST, "{} lines", page.lines().count());
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn the_skill_points_to_the_language_page_and_the_binary_prints_it() {
    let sandbox = Sandbox::new();

    let skill = sandbox.ghost(["skill"]);
    let language = sandbox.ghost(["skill", "--rhai"]);

    assert!(skill.quietly().contains("`ghost-browser skill --rhai`"));
    assert_eq!((language.code, language.stdout), (Some(0), page()));
}

#[test]
fn help_and_readme_name_every_setting() {
    let help = Sandbox::new().ghost(["--help"]);
    let readme = read("README.md");
    let config = read("src/config.rs");

    let names: BTreeSet<_> = config.split('"').filter(|text| is_setting(text)).collect();

    assert!(names.len() > 12, "{names:?}");
    let unnamed: Vec<_> =
        names.into_iter().filter(|name| !help.quietly().contains(name) || !readme.contains(name)).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}

fn is_setting(text: &str) -> bool {
    let is_name = text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    is_name && (text == "APIFY_TOKEN" || text.starts_with("GHOST_") && text.len() > "GHOST_".len())
}

#[test]
fn the_commands_of_the_readme_are_there_and_work() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.file("script.rhai", "print(\"done\")");
    let readme = read("README.md");
    let stopping = "ghost-browser run --stop script.rhai\n";
    assert!(readme.contains(stopping));

    assert_eq!(sandbox.shell(stopping).quietly(), "done");

    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
    for script in ["scripts/quickstart", "scripts/test"] {
        assert!(readme.contains(script));
        let mode = fs::metadata(root().join(script)).expect("it is there").permissions().mode();
        assert_ne!(mode & 0o111, 0, "{script} can be run");
    }
    gateway.assert_nothing_owed();
}

fn broken(example: &Example, said: &Said) -> Option<String> {
    let holds = match &example.claim {
        Claim::Prints(text) => said.code == Some(0) && said.stdout.trim_end() == text,
        Claim::FailsWith(part) => said.code != Some(0) && said.stderr.contains(part.as_str()),
    };
    (!holds).then(|| format!("{}\n  must be {:?}: {said:?}", example.script.trim_end(), example.claim))
}

fn page() -> String {
    read("docs/rhai-for-agents.md")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn examples(page: &str) -> Vec<Example> {
    let blocks = page.split("```rhai\n").skip(1);
    blocks.flat_map(|block| examples_of(block.split("```").next().unwrap_or_default())).collect()
}

fn examples_of(block: &str) -> Vec<Example> {
    let mut before = String::new();
    let mut examples = Vec::new();
    for line in block.lines() {
        match claim(line) {
            Some(claim) => examples.push(Example { script: format!("{before}{line}\n"), claim }),
            None => before.push_str(&format!("{line}\n")),
        }
    }
    examples
}

fn claim(line: &str) -> Option<Claim> {
    let (_, comment) = line.rsplit_once("// ")?;
    let text = |rest: &str| rest.trim().to_owned();
    let prints = comment.strip_prefix('→').map(|rest| Claim::Prints(text(rest)));
    prints.or_else(|| comment.strip_prefix("error:").map(|rest| Claim::FailsWith(text(rest))))
}
