//! What the documents tell agents and people to type works when it is typed, and so do the scripts beside them.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{CloseReply, FakeGateway, Reaction, Running, Sandbox};

/// A fenced block: its language and its text.
struct Block {
    language: String,
    text: String,
}

#[test]
fn the_skill_command_prints_the_skill() {
    let sandbox = Sandbox::new();

    let said = sandbox.ghost(["skill"]);

    assert_eq!((said.code, said.stdout), (Some(0), read("skill/SKILL.md")));
}

#[test]
fn every_command_and_script_of_the_skill_works_in_its_order() {
    let sandbox = Sandbox::local();

    for block in blocks(&read("skill/SKILL.md")) {
        let said = match block.language.as_str() {
            "sh" => sandbox.shell(&format!("set -e\n{}", block.text)),
            "rhai" => sandbox.script(&block.text),
            other => panic!("a block of {other:?} in the skill: it cannot be checked"),
        };
        assert_eq!(said.code, Some(0), "{}\n{said:#?}", block.text);
    }

    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
}

#[test]
fn the_first_script_of_the_readme_works() {
    let sandbox = Sandbox::local();
    let readme = read("README.md");
    let first = blocks(&readme).into_iter().find(|block| block.text.contains("<<'RHAI'"));
    let lines = first.expect("the readme has a script").text;
    let install = |line: &&str| !line.starts_with("cargo install");

    let said = sandbox.shell(&lines.lines().filter(install).collect::<Vec<_>>().join("\n"));

    assert!(said.value().contains(r#"{"heading":"Hello, ghost","title":"Hello"}"#), "{said:#?}");
    assert!(said.stdout.ends_with("released browser\n"), "{said:#?}");
}

#[test]
fn every_script_in_the_documents_and_examples_parses() {
    let engine = rhai::Engine::new_raw();
    let mut scripts: Vec<_> = ["README.md", "skill/SKILL.md"].iter().flat_map(|file| scripts_of(&read(file))).collect();
    scripts.extend(examples().iter().map(|path| fs::read_to_string(path).unwrap()));

    for script in &scripts {
        let body = if script.starts_with("#!") { script.split_once('\n').unwrap().1 } else { script };
        let parsed = engine.compile(body);
        assert!(parsed.is_ok(), "{script}\n{}", parsed.unwrap_err());
    }
    assert!(scripts.len() > 8, "{} scripts found", scripts.len());
}

/// Scripts of their own blocks and of here-documents.
#[test]
fn the_script_for_the_hosted_gateway_sends_nothing_unless_it_is_told_to() {
    let gateway = FakeGateway::start();
    let url = gateway.url();
    let base = [("GHOST_GATEWAY_URL", url.as_str())];
    let (token, yes) = (("APIFY_TOKEN", "t"), ("GHOST_HOSTED_TEST", "yes"));

    for variables in [&[][..], &[token], &[yes], &[token, ("GHOST_HOSTED_TEST", "1")]] {
        let said = test_hosted(&[&base, variables].concat());
        assert!(said.fails_with(2).contains("hint: APIFY_TOKEN="), "{said:#?}");
    }
    test_hosted(&[token, yes, ("GHOST_GATEWAY_URL", "local")]).fails_with(2);

    assert_eq!(gateway.requests(), 0);
}

#[test]
fn the_script_for_the_hosted_gateway_says_what_it_allocates_and_releases_it() {
    let gateway = FakeGateway::start();
    gateway.wants_token("t");
    let sandbox = Sandbox::of(&gateway);
    let state = sandbox.state();
    let variables = [
        ("APIFY_TOKEN", "t"),
        ("GHOST_HOSTED_TEST", "yes"),
        ("GHOST_GATEWAY_URL", &gateway.url()),
        ("GHOST_BROWSER_RUNTIME_DIR", state.to_str().unwrap()),
    ];

    let said = test_hosted(&variables);

    assert_eq!(said.code, Some(0), "{said:#?}");
    assert!(said.stderr.contains("allocating three browsers"), "{said:#?}");
    assert!(said.stderr.ends_with("every browser of this test is released: confirmed\n"), "{said:#?}");
    assert_eq!(gateway.allocations(), 3);
    gateway.assert_nothing_owed();
}

#[test]
fn the_script_for_the_hosted_gateway_releases_what_it_has_when_it_fails() {
    let gateway = FakeGateway::start();
    gateway.cdp().on("Runtime.evaluate", |_| Reaction::Error(-32000, "no".to_owned()));
    let sandbox = Sandbox::of(&gateway);
    let state = sandbox.state();
    gateway.answers_releases_with([500]);
    gateway.cdp().answers_close_with(CloseReply::Drop);

    let said = test_hosted(&[
        ("APIFY_TOKEN", "t"),
        ("GHOST_HOSTED_TEST", "yes"),
        ("GHOST_GATEWAY_URL", &gateway.url()),
        ("GHOST_BROWSER_RUNTIME_DIR", state.to_str().unwrap()),
    ]);

    assert_eq!(said.code, Some(1), "{said:#?}");
    assert!(said.stderr.ends_with("every browser of this test is released: confirmed\n"), "{said:#?}");
    gateway.assert_nothing_owed();
}

fn scripts_of(document: &str) -> Vec<String> {
    blocks(document)
        .into_iter()
        .flat_map(|block| match block.language.as_str() {
            "rhai" => vec![block.text],
            _ => here_documents(&block.text),
        })
        .collect()
}

fn here_documents(text: &str) -> Vec<String> {
    let parts = text.split("<<'RHAI'\n").skip(1);
    parts.filter_map(|part| part.split_once("RHAI\n").map(|(script, _)| script.to_owned())).collect()
}

fn blocks(document: &str) -> Vec<Block> {
    let mut parts = document.split("\n```");
    parts.next();
    let opening = parts.enumerate().filter(|(index, _)| index % 2 == 0);
    opening
        .map(|(_, part)| {
            let (language, text) = part.split_once('\n').expect("a fence is a line");
            Block { language: language.to_owned(), text: format!("{text}\n") }
        })
        .collect()
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|end| end == "rhai")).collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// Runs `scripts/test-hosted` with nothing but what is given and a search path.
fn test_hosted(variables: &[(&str, &str)]) -> support::Said {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test-hosted"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs(variables.iter().copied()).env("GHOST_HOSTED_BINARY", env!("CARGO_BIN_EXE_ghost-browser"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(command, Vec::new()).wait()
}
