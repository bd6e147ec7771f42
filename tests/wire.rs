//! Whatever a browser sends: odd, huge, many, deep, late, or never.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use support::{Command, FakeCdp, FakeGateway, Reaction, Sandbox, ms};

/// A text frame that answers `command`, its result given as JSON text.
fn answer(command: &Command, result: &str) -> String {
    format!("{{\"id\":{},\"result\":{result}}}", command.id)
}

/// Has `method` answered with a result that is given as JSON text, whatever it is.
fn answers(cdp: &FakeCdp, method: &str, result: impl Into<String>) {
    let result = result.into();
    cdp.on(method, move |command| Reaction::Raw(vec![answer(command, &result)]));
}

#[test]
fn w1_half_a_character_never_loses_a_reply_or_an_event() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let cdp = gateway.cdp();
    answers(cdp, "Test.half", r#"{"a":"\ud83c","b":"\udc00x","\ud83ckey":1,"whole":"\ud83c\udf00","not":"\\ud800"}"#);
    cdp.on("Test.refused", |command| {
        let error = r#"{"code":-32000,"message":"no \ud83c","data":"\udc00"}"#;
        Reaction::Raw(vec![format!("{{\"id\":{},\"error\":{error}}}", command.id)])
    });
    cdp.on("Test.told", |command| {
        let event = r#"{"method":"Test.event","params":{"\udc00k":"\ud83c"}}"#.to_owned();
        Reaction::Raw(vec![event, answer(command, "{}")])
    });
    // In the envelope itself, too.
    cdp.on("Test.envelope", |command| {
        Reaction::Raw(vec![format!("{{\"id\":{},\"\\ud83c\":\"\\ud83c\",\"result\":{{\"v\":1}}}}", command.id)])
    });

    let said = sandbox.script(
        r#"
        print(cdp("Test.half"));
        try { cdp("Test.refused") } catch (e) { print(e.message + " " + e.data); }
        let event = expect_event("Test.event", #{timeout_ms: 5000});
        cdp("Test.told");
        print(event.wait().params);
        cdp("Test.envelope").v"#,
    );

    let half = r#"{"a":"�","b":"�x","not":"\\ud800","whole":"🌀","�key":1}"#;
    assert_eq!(said.quietly(), format!("{half}\nTest.refused: no �: � �\n{{\"�k\":\"�\"}}\n1"));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn w1_half_an_emoji_of_a_real_page_is_a_string_with_a_mark() {
    let sandbox = Sandbox::local();

    let said = sandbox.script(r#"print(js("'\\ud83c'")); print(js("({['\\udc00']: '\\ud83c!'})")); js("'\\\\ud800'")"#);

    assert_eq!(said.value(), "\u{FFFD}\n{\"\u{FFFD}\":\"\u{FFFD}!\"}\n\\ud800");
    sandbox.stop();
}

#[test]
fn w2_large_replies_arrive_whole_in_one_frame() {
    large_replies_arrive_whole(|_, frame| Reaction::Raw(vec![frame]));
}

#[test]
fn w2_large_replies_arrive_whole_in_many_frames() {
    large_replies_arrive_whole(|cdp, frame| {
        cdp.send_fragmented(&frame, 1 << 20);
        Reaction::Never
    });
}

#[track_caller]
fn large_replies_arrive_whole(send: impl Fn(&FakeCdp, String) -> Reaction + Send + Sync + 'static) {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let cdp = gateway.cdp().clone();
    gateway.cdp().on("Test.large", move |command| {
        let size = command.params["mib"].as_u64().unwrap() as usize * (1 << 20);
        let mut frame = format!("{{\"id\":{},\"result\":{{\"text\":\"", command.id);
        frame.reserve_exact(size + 3);
        frame.extend(std::iter::repeat_n("xxxxxxxxxxxxxxxx", size / 16 - 1));
        frame.push_str("0123456789abcend\"}}");
        send(&cdp, frame)
    });

    let said = sandbox.script(
        r#"
        for mib in [17, 40, 65, 101] {
            let text = cdp("Test.large", #{mib: mib}).text;
            print([text.len() == mib * 1048576, text.sub_string(text.len() - 3)]);
        }"#,
    );

    assert_eq!(said.quietly(), ["[true,\"end\"]"; 4].join("\n"));
    assert_eq!((sandbox.status()["state"].as_str(), gateway.sockets()), (Some("connected"), 1));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn w2_a_large_command_leaves_whole() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    gateway.cdp().answers("Test.take", json!({"taken": true}));

    let said = sandbox.script(r#"let text = "y"; text.pad(5 * 1048576, "z"); cdp("Test.take", #{text: text}).taken"#);

    assert_eq!(said.quietly(), "true");
    let taken = gateway.cdp().wait_for("Test.take", 1).params["text"].as_str().unwrap().to_owned();
    assert_eq!((taken.len(), &taken[..2]), (5 << 20, "yz"));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn w2_seventy_megabytes_of_a_real_page_are_one_string() {
    let sandbox = Sandbox::local();

    let said = sandbox.script(
        r#"
        let text = js("'x'.repeat(70e6 - 1) + '.'");
        print([text.len(), text.sub_string(text.len() - 1)]);
        text = ();
        js("'still here'")"#,
    );

    assert_eq!(said.value(), "[70000000,\".\"]\nstill here");
    sandbox.stop();
}

#[test]
fn w2_a_message_over_the_cap_costs_the_connection_and_that_is_said() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let cdp = gateway.cdp().clone();
    gateway.cdp().on("Test.huge", move |_| {
        // The head of a text frame of 600 MiB: it is refused before its first byte.
        let mut head = vec![0x81, 127];
        head.extend((600_u64 << 20).to_be_bytes());
        cdp.send_bytes(&head);
        Reaction::Never
    });

    let said = sandbox.script("cdp(\"Test.huge\")");

    let error = said.fails_with(4);
    assert!(error.contains("a message over 512 MiB") && error.contains("the outcome is unknown"), "{error}");
    sandbox.wait_for_status("the release", |status| status["state"] == "stopped");
    assert_eq!(gateway.deletes(), 1);
    gateway.assert_nothing_owed();
}

#[test]
fn w3_a_flood_of_events_costs_neither_the_reply_nor_the_event_that_is_awaited() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let cdp = gateway.cdp().clone();
    gateway.cdp().on("Test.flood", move |command| {
        let noise = json!({"method": "Test.noise", "params": {"text": "n".repeat(300)}});
        cdp.flood(&noise, 50_000);
        cdp.send_raw(&answer(command, "{\"replied\":true}"));
        cdp.send_raw(r#"{"method":"Test.wanted","params":{"n":1}}"#);
        cdp.flood(&noise, 50_000);
        cdp.send_raw(r#"{"method":"Test.wanted","params":{"n":2}}"#);
        Reaction::Never
    });
    sandbox.script("cdp(\"Browser.getVersion\");").quietly();
    let before = peak_kb(&sandbox);

    let said = sandbox.script(
        r#"
        let wanted = expect_event("Test.wanted", #{where: |event| event.n == 2, timeout_ms: 60000});
        print(cdp("Test.flood").replied);
        print(wanted.wait().params);
        drain_events("Test.nothing").len()"#,
    );

    assert_eq!(said.value(), "true\n{\"n\":2}\n0");
    let status = sandbox.status();
    let (kept, dropped) = (status["events_buffered"].as_u64().unwrap(), status["events_dropped"].as_u64().unwrap());
    assert_eq!(kept + dropped, 100_002, "{status:#}");
    assert!(dropped > 0 && said.stderr.contains("events were dropped"), "{said:#?}");
    let grown = peak_kb(&sandbox) - before;
    assert!(grown < 48 << 10, "the daemon grew by {grown} kB");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

/// The most memory that the daemon has had, in kB.
fn peak_kb(sandbox: &Sandbox) -> u64 {
    let pid = sandbox.daemon().expect("a daemon").pid;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("its peak");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number of kB")
}

#[test]
fn w4_frames_that_make_no_sense_end_nothing() {
    let gateway = FakeGateway::start();
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_BROWSER_LOG", "debug");
    let cdp = gateway.cdp();
    let odd = [
        "",
        "garbage-canary",
        "{",
        "[]",
        "null",
        "{}",
        r#"{"id":"seven","result":{}}"#,
        r#"{"id":-1,"result":{}}"#,
        r#"{"id":999999,"result":{"a":1}}"#,
        r#"{"result":{}}"#,
        r#"{"params":{}}"#,
        r#"{"method":7}"#,
        r#"{"method":"Page.javascriptDialogOpening"}"#,
        r#"{"method":"Target.attachedToTarget","params":{"x":1}}"#,
        r#"{"method":"Target.detachedFromTarget","params":[]}"#,
        r#"{"method":"Inspector.targetCrashed","params":{}}"#,
        r#"{"method":"Test.unknown","sessionId":"nobody","params":{"deep":[1]}}"#,
    ];
    let (frames, sender) = (odd.map(str::to_owned).to_vec(), cdp.clone());
    cdp.on("Test.odd", move |command| {
        frames.iter().for_each(|frame| sender.send_raw(frame));
        sender.send_binary(b"binary-canary");
        // Text that is not UTF-8.
        sender.send_bytes(&[0x81, 2, 0xff, 0xfe]);
        Reaction::Twice(json!({"n": command.nth}))
    });
    cdp.on("Test.empty", |command| Reaction::Raw(vec![format!("{{\"id\":{}}}", command.id)]));
    cdp.on("Test.slow", |_| Reaction::After(ms(150), Box::new(Reaction::Result(json!({})))));

    let said = sandbox.script(
        r#"
        print([cdp("Test.odd").n, cdp("Test.odd").n, cdp("Test.empty").len()]);
        try { cdp("Test.slow", #{}, (), #{timeout_ms: 50}) } catch (e) { print(e.code); }
        sleep(0.3);
        print(js("1 + 1"));
        drain_events("Test.unknown").len()"#,
    );

    assert_eq!(said.quietly(), "[0,1,0]\noutcome_unknown\n2\n2");
    let status = sandbox.status();
    assert_eq!((status["state"].as_str(), gateway.sockets()), (Some("connected"), 1));
    let logged = logs(&sandbox);
    assert!(logged.contains("a reply that nobody waits for") && logged.contains("a frame that is no text"), "{logged}");
    assert!(!logged.contains("canary"), "{logged}");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

/// Every log of the sandbox.
fn logs(sandbox: &Sandbox) -> String {
    let files = fs::read_dir(sandbox.state()).expect("the state folder").flatten().map(|entry| entry.path());
    let logs = files.filter(|path| path.extension().is_some_and(|end| end == "log"));
    logs.map(|path| fs::read_to_string(path).expect("a log")).collect()
}

#[test]
fn w5_numbers_and_nesting_pass_through_script_and_stdout() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let numbers = "[9007199254740993,-9223372036854775808,1e308,1.0,-0.0,5e-324,0.1]";
    answers(gateway.cdp(), "Test.numbers", format!("{{\"numbers\":{numbers},\"beyond\":18446744073709551615}}"));
    let deep = format!("{}7{}", "[{\"d\":".repeat(150), "}]".repeat(150));
    answers(gateway.cdp(), "Test.deep", format!("{{\"deep\":{deep}}}"));
    gateway.cdp().answers("Test.take", json!({}));

    let said = sandbox.script(
        r#"
        let got = cdp("Test.numbers");
        print(got.numbers);
        print(got.beyond);
        cdp("Test.take", #{numbers: got.numbers, whole: 3.0});
        print(cdp("Test.deep").deep);
        cdp("Test.deep").deep"#,
    );

    assert_eq!(said.quietly(), format!("{numbers}\n18446744073709551615\n{deep}\n{deep}"));
    let taken = gateway.cdp().wait_for("Test.take", 1).params;
    // Whole floats are sent as integers: CDP refuses `1.0` where it wants an integer.
    assert_eq!(taken["numbers"].to_string(), "[9007199254740993,-9223372036854775808,1e+308,1,-0.0,5e-324,0.1]");
    assert_eq!(taken["whole"], json!(3));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn w5_numbers_and_a_deep_document_of_a_real_page() {
    let sandbox = Sandbox::local();
    let said = sandbox.script(
        r#"
        print(js("[NaN, 9007199254740993n, 18446744073709551615n, 1e308, -0, 1.5, [Infinity]]"));
        js("document.body.innerHTML = '<div>'.repeat(130); 1");
        let depth = 0;
        let node = cdp("DOM.getDocument", #{depth: -1}, ensure_page()).root;
        while node.contains("children") && node.children.len() > 0 { node = node.children[node.children.len() - 1]; depth += 1; }
        depth"#,
    );

    assert_eq!(said.value(), "[NaN,\"9007199254740993\",\"18446744073709551615\",1e308,-0.0,1.5,[inf]]\n132");
    sandbox.stop();
}

#[test]
fn params_that_cannot_be_json_are_refused_by_their_path_and_nothing_is_sent() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script(
        r#"
        for bad in [|| 1, 1..3, 0.0 / 0.0, timestamp()] {
            try { cdp("Test.bad", #{clip: #{sizes: [1, bad]}}) } catch (e) { print(e.code + " " + e.message.contains("clip.sizes[1]")); }
        }"#,
    );

    assert_eq!(said.quietly(), ["bad_params true"; 4].join("\n"));
    assert_eq!(gateway.cdp().count("Test.bad"), 0);
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn w8_a_reply_that_never_comes_is_an_unknown_outcome_and_is_asked_for_once() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    gateway.cdp().on("Test.never", |_| Reaction::Never);
    gateway.cdp().on("Test.late", |_| Reaction::After(ms(200), Box::new(Reaction::Result(json!({})))));

    let caught = sandbox.script(
        r#"
        try { cdp("Test.never", #{}, (), #{timeout_ms: 100}) } catch (e) { print([e.code, e.method]); }
        let late = cdp_all([["Test.late"]], #{timeout_ms: 50});
        sleep(0.4);
        print(late[0].error.code);
        cdp("Browser.getVersion").protocolVersion"#,
    );
    let uncaught = sandbox.script("cdp(\"Test.never\", #{}, (), #{timeout_ms: 100})");

    assert_eq!(caught.quietly(), "[\"outcome_unknown\",\"Test.never\"]\noutcome_unknown\n1.3");
    let error = uncaught.fails_with(4);
    assert!(error.contains("no reply within 0.1") && error.contains("the outcome is unknown"), "{error}");
    assert_eq!((gateway.cdp().count("Test.never"), gateway.cdp().count("Test.late")), (2, 1));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn cdp_all_sends_all_at_once_and_tells_each_outcome_under_one_deadline() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let cdp = gateway.cdp();
    cdp.on("Test.echo", |command| Reaction::Result(json!({"n": command.params["n"], "on": command.session})));
    cdp.on("Test.no", |_| Reaction::Error(-32000, "will not".to_owned()));
    cdp.on("Test.never", |_| Reaction::Never);
    // Answered only when the last one has come: a call that waited for each reply would never get there.
    let (first, waiting) = (std::sync::Mutex::new(None), cdp.clone());
    cdp.on("Test.first", move |command| {
        *first.lock().unwrap() = Some(command.clone());
        Reaction::Never
    });
    cdp.on("Test.last", move |command| {
        let first = waiting.wait_for("Test.first", 1);
        Reaction::Raw(vec![command.reply(json!({"n": "last"})), first.reply(json!({"n": "first"}))])
    });

    let began = Instant::now();
    let said = sandbox.script(
        r#"
        let page = ensure_page();
        let all = cdp_all([
            ["Test.first"], ["Test.echo", #{n: 1}], ["Test.echo", #{n: 2}, page], ["Test.no"], "Test.echo", ["Test.last"],
        ]);
        print(all.map(|reply| if reply.ok { reply.result.n } else { reply.error.code + " " + reply.error.cdp_code }));
        print(all[2].result.on == page.session_id);
        print(cdp_all([]).len());
        cdp_all([["Test.never"], ["Test.never"], ["Test.echo", #{n: 3}]], #{timeout_ms: 500}).map(|reply| reply.ok)"#,
    );

    assert_eq!(said.quietly(), "[\"first\",1,2,\"cdp_error -32000\",null,\"last\"]\ntrue\n0\n[false,false,true]");
    assert!(began.elapsed() < Duration::from_secs(15), "one deadline for all");
    let said = sandbox.script("cdp_all([[\"Test.echo\", #{a: || 1}], [\"Test.echo\"]])");
    assert!(said.fails_with(1).contains("a function cannot be JSON"), "{said:#?}");
    assert_eq!(cdp.count("Test.echo"), 4);
    sandbox.stop();
    gateway.assert_nothing_owed();
}

/// Any JSON value, but for integers that only a decimal string can hold.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no such number", |number| number.is_finite()).prop_map(Value::from),
        ".*".prop_map(Value::from),
        "[\\x00-\\x7f\"\\\\\u{FFFD}🌀]*".prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 64, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(".*", inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A value as the binary prints it: keys in order, floats as short as they can be.
fn printed(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => format!("{:?}", number.as_f64().unwrap()),
        Value::Array(items) => format!("[{}]", items.iter().map(printed).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let fields: Vec<_> = fields.iter().map(|(key, of)| format!("{}:{}", json!(key), printed(of))).collect();
            format!("{{{}}}", fields.join(","))
        }
        other => other.to_string(),
    }
}

#[test]
fn any_json_value_comes_back_through_script_and_stdout_as_it_was() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script(";").quietly();
    let mut runner =
        TestRunner::new(Config { cases: 8, max_shrink_iters: 20, failure_persistence: None, ..Config::default() });

    let outcome = runner.run(&vec(any_json(), 1..200), |values| {
        let expected: Vec<_> = values.iter().map(printed).collect();
        gateway.cdp().answers("Test.values", json!({"values": values}));
        let said = sandbox.script("for value in cdp(\"Test.values\").values { print([value]); }");
        let said: Vec<_> = said.value().lines().collect();
        prop_assert_eq!(said.len(), expected.len());
        for (said, expected) in said.iter().zip(&expected) {
            prop_assert_eq!(*said, format!("[{expected}]"));
        }
        Ok(())
    });

    sandbox.stop();
    outcome.unwrap();
    gateway.assert_nothing_owed();
}
