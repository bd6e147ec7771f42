//! Helper modules: global ones and shipped ones, what changes and what breaks, and what must not get in.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use support::{FakeGateway, Sandbox};

/// A sandbox whose work folder is a workspace.
fn workspace(gateway: &FakeGateway) -> Sandbox {
    let sandbox = Sandbox::of(gateway);
    sandbox.ghost(["workspace"]).quietly();
    sandbox
}

fn helper(sandbox: &Sandbox, name: &str, text: &str) {
    sandbox.file(&format!(".ghost/helpers/{name}.rhai"), text);
}

fn finish(gateway: &FakeGateway, sandbox: &Sandbox) {
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_workspace_begins_with_one_comment_and_keeps_what_was_changed() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let folder = sandbox.ghost(["workspace"]).quietly().to_owned();
    assert_eq!(folder, sandbox.work().join(".ghost/helpers").display().to_string());
    let seeded = fs::read_to_string(format!("{folder}/main.rhai")).unwrap();
    assert!(seeded.lines().all(|line| line.starts_with("//")), "{seeded}");
    helper(&sandbox, "main", "fn mine() { 1 }");
    sandbox.ghost(["workspace"]).quietly();

    assert_eq!(sandbox.script("mine()").quietly(), "1");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    finish(&gateway, &sandbox);
}

#[test]
fn helpers_are_global_see_one_another_and_have_constants_and_imports() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    helper(&sandbox, "a", "const TEN = 5 * 2; fn ten() { global::TEN } fn twice() { twenty() * 2 }");
    helper(
        &sandbox,
        "b",
        "import \"a\" as a; const ONE = 1; fn twenty() { a::ten() + ten() } fn called(f) { f.call(ONE()) } fn ONE() { global::ONE }",
    );

    assert_eq!(sandbox.script("fn local() { twice() } [local(), called(|x| x + twenty())]").quietly(), "[40,21]");
    // The script's own comes first, and never where a helper's is asked for by its module.
    assert_eq!(sandbox.script("fn ten() { 1 } [ten(), ten(), twenty(), ten()]").quietly(), "[1,1,11,1]");
    finish(&gateway, &sandbox);
}

#[test]
fn a_change_is_seen_by_the_next_call_whatever_it_is() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    helper(&sandbox, "a", "import \"b\" as b; fn one() { b::number() }");
    helper(&sandbox, "b", "fn number() { 1 }");
    assert_eq!(sandbox.script("one()").quietly(), "1");

    helper(&sandbox, "b", "fn number() { 2 }");
    assert_eq!(sandbox.script("one()").quietly(), "2");
    helper(&sandbox, "c", "fn more() { number() + 1 }");
    assert_eq!(sandbox.script("more()").quietly(), "3");
    fs::remove_file(sandbox.work().join(".ghost/helpers/c.rhai")).unwrap();
    sandbox.script("more()").fails_with(1);
    let fresh = sandbox.file("fresh", "fn number() { 4 }");
    fs::rename(fresh, sandbox.work().join(".ghost/helpers/b.rhai")).unwrap();
    assert_eq!(sandbox.script("one()").quietly(), "4");

    finish(&gateway, &sandbox);
}

#[test]
fn a_broken_helper_costs_one_warning_and_an_error_for_whoever_calls_it() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    helper(&sandbox, "good", "fn fine() { 1 }");
    helper(&sandbox, "bad", "fn first(a) {\n    a +\n}\nfn second() { 2 }");

    let said = sandbox.script("fine()");
    assert_eq!(said.value(), "1");
    assert_eq!(said.stderr.lines().count(), 1, "{said:#?}");
    assert!(said.stderr.starts_with("warning: ") && said.stderr.contains(".ghost/helpers/bad.rhai:3:1"), "{said:#?}");

    for call in ["first(1)", "second()"] {
        let said = sandbox.script(format!("print(0); {call}"));
        assert_eq!(said.stdout, "0\n");
        let error = said.fails_with(1);
        assert!(error.contains("error: ") && error.contains(".ghost/helpers/bad.rhai:3:1"), "{error}");
    }
    let caught = sandbox.script("try { second() } catch (e) { print(e.code) }");
    assert_eq!(caught.value(), "script_error");
    finish(&gateway, &sandbox);
}

#[test]
fn an_error_inside_a_helper_names_its_file_and_shows_its_line() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    helper(&sandbox, "deep", "fn outer() {\n    inner(7)\n}\nfn inner(n) {\n    throw \"no luck with \" + n;\n}");

    let error = sandbox.script("1;\nouter()").fails_with(1).to_owned();

    assert!(error.contains(".ghost/helpers/deep.rhai:5:5"), "{error}");
    assert!(error.contains("throw \"no luck with \" + n;"), "{error}");
    finish(&gateway, &sandbox);
}

#[test]
fn the_top_level_of_a_helper_does_nothing() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);

    for (text, line) in [
        ("print(1);", 1),
        ("fn f() {}\nlet x = 1;", 2),
        ("const X = js(\"1\");", 1),
        ("const X = || 1;", 1),
        ("const X = { let a = []; loop { a.push(1) } };", 1),
        ("const N = \"page\"; import N as page;", 1),
        ("\n\nwhile true { }", 3),
    ] {
        helper(&sandbox, "main", text);
        let said = sandbox.script("2");
        assert_eq!(said.value(), "2", "{text}");
        assert!(said.stderr.contains(&format!("main.rhai:{line}:")), "{text}: {said:#?}");
    }
    assert_eq!(gateway.cdp().count("Runtime.evaluate"), 0);
    finish(&gateway, &sandbox);
}

#[test]
fn constants_that_would_fill_the_memory_break_their_helper_and_nothing_else() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    let more = |n: usize| format!("const C{} = [{}];", n + 1, vec![format!("C{n}"); 10].join(", "));
    let text = format!("const C0 = 1;\n{}\nfn f() {{ 1 }}", (0..12).map(more).collect::<Vec<_>>().join("\n"));
    helper(&sandbox, "main", &text);

    let said = sandbox.script("2");

    assert_eq!(said.value(), "2");
    assert!(said.stderr.contains("main.rhai") && said.stderr.contains("memory"), "{said:#?}");
    assert_eq!(sandbox.status()["state"], "connected");
    finish(&gateway, &sandbox);
}

#[test]
fn a_helper_cannot_replace_what_every_script_has() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    helper(
        &sandbox,
        "main",
        "fn cdp(a) { 1 }\nfn js(a) { \"mine\" }\nfn contains(a) { true }\nfn ok() { js(\"20 + 22\") }",
    );

    let said = sandbox.script("[js(\"1+1\"), ok(), \"abc\".contains(\"x\")]");

    assert_eq!(said.value(), "[2,42,false]");
    for name in ["`cdp`", "`js`", "`contains`"] {
        assert!(said.stderr.contains(name), "{said:#?}");
    }
    finish(&gateway, &sandbox);
}

#[test]
fn of_two_helpers_with_one_function_the_first_wins_and_it_is_said() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    helper(&sandbox, "a", "fn who() { \"a\" }");
    helper(&sandbox, "b", "fn who() { \"b\" } fn who(x) { x }");

    let said = sandbox.script("[who(), who(1)]");

    assert_eq!(said.value(), "[\"a\",1]");
    assert!(said.stderr.contains("a.rhai") && said.stderr.contains("b.rhai"), "{said:#?}");
    finish(&gateway, &sandbox);
}

#[test]
fn a_file_named_like_a_shipped_module_is_what_import_finds_and_nothing_else() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    sandbox.script("import \"page\" as page; page::text(\"h1\")").fails_with(1);
    helper(&sandbox, "page", "fn text(x) { \"my \" + x } fn only_here() { 1 }");

    assert_eq!(sandbox.script("import \"page\" as page; page::text(\"h1\")").quietly(), "my h1");
    assert_eq!(sandbox.script("import \"page.rhai\" as p; p::only_here()").quietly(), "1");
    sandbox.script("only_here()").fails_with(1);
    finish(&gateway, &sandbox);
}

#[test]
fn modules_that_import_each_other_in_a_circle_end_in_an_error_that_shows_it() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    helper(&sandbox, "a", "import \"b\" as b; fn fa() { 1 }");
    helper(&sandbox, "b", "import \"c\" as c; fn fb() { 1 }");
    helper(&sandbox, "c", "import \"a\" as a; fn fc() { 1 }");
    helper(&sandbox, "selfish", "import \"selfish\" as s; fn fs() { 1 }");

    let said = sandbox.script("1 + 1");
    assert_eq!(said.value(), "2");
    let error = sandbox.script("import \"a\" as a; a::fa()").fails_with(1).to_owned();
    assert!(error.contains("a → b → c → a"), "{error}");
    let error = sandbox.script("import \"selfish\" as s;").fails_with(1).to_owned();
    assert!(error.contains("selfish → selfish"), "{error}");
    finish(&gateway, &sandbox);
}

#[test]
fn import_reaches_nothing_outside_the_folder() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    sandbox.file("out.rhai", "fn out() { \"out\" }");
    sandbox.file(".ghost/helpers/folder/in.rhai", "fn out() { \"out\" }");
    let outside = sandbox.work().join("out.rhai");
    symlink(&outside, sandbox.work().join(".ghost/helpers/link.rhai")).unwrap();
    symlink("../../out.rhai", sandbox.work().join(".ghost/helpers/relative.rhai")).unwrap();
    let absolute = outside.with_extension("").display().to_string();

    for name in ["../../out", "..", "", ".", "./a", "folder/in", "link", "relative", "a\\u0000", &absolute, "nowhere"] {
        let said = sandbox.script(format!("import \"{name}\" as m; m::out()"));
        assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{name}: {said:#?}");
    }
    let said = sandbox.script("out()");
    assert!(said.fails_with(1).contains("link.rhai"), "{said:#?}");
    finish(&gateway, &sandbox);
}

#[test]
fn what_others_may_write_is_not_loaded_and_it_is_said() {
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    helper(&sandbox, "main", "fn mine() { 1 }");
    let place = |name: &str| sandbox.work().join(name);
    let open = |name: &str, mode| fs::set_permissions(place(name), fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(sandbox.script("mine()").quietly(), "1");

    for (name, mode, closed) in [(".ghost/helpers/main.rhai", 0o666, 0o644), (".ghost/helpers", 0o775, 0o755)] {
        open(name, mode);
        let said = sandbox.script("print(2); mine()");
        assert_eq!(said.stdout, "2\n", "{name}");
        assert!(
            said.fails_with(1).contains("only you can write") || said.stderr.contains("others may write"),
            "{said:#?}"
        );
        open(name, closed);
        assert_eq!(sandbox.script("mine()").quietly(), "1");
    }
    finish(&gateway, &sandbox);
}

#[test]
fn what_another_user_owns_is_not_loaded() {
    if !nix::unistd::getuid().is_root() {
        // Only root can give files away; for others the check is the same one as for their mode.
        return;
    }
    let gateway = FakeGateway::start();
    let sandbox = workspace(&gateway);
    helper(&sandbox, "main", "fn mine() { 1 }");
    chown(sandbox.work().join(".ghost/helpers/main.rhai"), Some(65534), None).unwrap();

    let said = sandbox.script("mine()");

    assert!(said.fails_with(1).contains("belongs to another user"), "{said:#?}");
    finish(&gateway, &sandbox);
}

#[test]
fn helpers_are_listed_shown_and_copied() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let folder = sandbox.work().join(".ghost/helpers");
    assert_eq!(sandbox.ghost(["helpers", "path"]).quietly(), folder.display().to_string());
    assert!(sandbox.ghost(["helpers"]).quietly().starts_with("page  shipped  Opening pages"));
    sandbox.assert_untouched();

    let shown = sandbox.ghost(["helpers", "show", "page"]).quietly().to_owned();
    assert!(shown.starts_with("//! ") && shown.contains("fn open(url)"), "{shown}");
    let copied = sandbox.ghost(["helpers", "copy", "page"]).quietly().to_owned();
    assert_eq!(copied, folder.join("page.rhai").display().to_string());
    assert!(sandbox.ghost(["helpers", "copy", "page"]).fails_with(1).contains("hint: "));
    assert!(sandbox.ghost(["helpers", "show", "nothing"]).fails_with(2).contains("page"));
    helper(&sandbox, "page", "//! Mine.\nfn open(x) { x }");

    assert_eq!(sandbox.ghost(["helpers", "show", "page"]).quietly(), "//! Mine.\nfn open(x) { x }");
    assert_eq!(sandbox.ghost(["helpers", "list"]).quietly(), "page  .ghost/helpers/page.rhai  Mine.");
    assert_eq!(gateway.requests(), 0);
}

#[test]
fn a_module_that_cannot_be_written_whole_is_not_left_behind() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    for call in ["helpers copy page", "workspace"] {
        // A file may have no bytes, as on a disk that is full.
        let said = sandbox.shell(&format!("trap '' XFSZ; ulimit -f 0; ghost-browser {call}"));
        assert_ne!(said.code, Some(0), "{call}: {said:#?}");
        assert_eq!(fs::read_dir(sandbox.work().join(".ghost/helpers")).unwrap().count(), 0, "{call}");
    }

    assert!(sandbox.ghost(["helpers", "show", "page"]).quietly().starts_with("//!"));
    gateway.assert_nothing_owed();
}
