//! `parallel` without a browser: what its workers see, what ends them, and what the script is told.

use super::*;

#[test]
fn results_come_in_the_order_of_the_items() {
    let many = "let items = []; for n in 0..100 { items.push(n); } \
        let results = parallel(items, 8, |n, page| n * n); \
        let wrong = 0; for (result, n) in results { if !result.ok || result.value != n * n { wrong += 1; } } \
        [results.len(), wrong]";

    assert_eq!(output(many), "[100,0]\n");
    assert_eq!(output("parallel([], 4, |n, page| n)"), "[]\n");
    assert_eq!(
        output("parallel([1, 2], 16, |n| n + 1)"),
        r#"[{"ok":true,"value":2},{"ok":true,"value":3}]"#.to_owned() + "\n"
    );
}

#[test]
fn functions_arguments_and_constants_of_the_script_are_there() {
    let source = "const FACTOR = 10; fn scale(n) { n * global::FACTOR + args.len() } fn whole(n, page) { scale(n) } \
        let add = |n| scale(n) + 100; \
        parallel([1, 2], 2, |n, page| add.call(n)).map(|r| r.value) + parallel([3], 1, whole).map(|r| r.value) \
        + parallel([4], 1, Fn(\"whole\")).map(|r| r.value)";

    assert_eq!(output(source), "[111,121,31,41]\n");
}

#[test]
fn what_a_worker_writes_stays_in_it_and_lasts_from_item_to_item() {
    let source = "let count = 0; let list = [#{n: 0}]; let bump = || { count += 1; list[0].n += 1; list.push(1); }; \
        let one = parallel([1, 2, 3], 1, |n, page| { bump.call(); [count, list.len()] }); \
        print([count, list]); one.map(|r| r.value)";

    assert_eq!(output(source), "[0,[{\"n\":0}]]\n[[1,2],[2,3],[3,4]]\n");
}

#[test]
fn a_closure_that_holds_itself_goes_along() {
    let source = "let own = #{n: 10}; let read = || own.n; own.read = read; \
        parallel([3, 5], 2, |n, page| read.call() + n).map(|r| r.value)";

    assert_eq!(output(source), "[13,15]\n");
}

#[test]
fn a_returned_value_may_be_a_function() {
    let source =
        "let made = parallel([1, 2], 2, |n, page| { let kept = n * 10; || kept }); made.map(|r| r.value.call())";

    assert_eq!(output(source), "[10,20]\n");
}

#[test]
fn a_failure_is_the_outcome_of_its_item_and_always_a_map() {
    let source = "let results = parallel([0, 1, 2, 3, 4], 2, |n, page| switch n { \
        1 => throw \"bad\", 2 => throw #{code: \"mine\", message: \"own\", n: n}, 3 => n + nothing(), \
        4 => js(1), _ => n }); \
        results.map(|r| if r.ok { [r.value] } else { [r.error.code, r.error.message] })";

    let expected = r#"[[0],["script_error","bad"],["mine","own"],["script_error","no function `nothing` takes ()"],["bad_params","js: the expression must be a string, not an integer"]]"#;
    let seen = output(source);
    // The engine's own sentence is not ours to promise.
    let of_the_engine =
        |text: &str| text.split("\"script_error\",\"").nth(2).unwrap().split('"').next().unwrap().to_owned();
    assert_eq!(seen.trim_end().replace(&of_the_engine(&seen), &of_the_engine(expected)), expected);
    assert!(of_the_engine(&seen).contains("nothing"), "{seen}");
    assert_eq!(
        output("parallel([1], 1, |n, page| {\n throw 5 })[0].error"),
        "{\"code\":\"script_error\",\"column\":2,\"line\":2,\"message\":\"5\",\"value\":5}\n"
    );
}

#[test]
fn wrong_arguments_of_parallel_are_named_before_anything_runs() {
    for (source, message) in [
        ("parallel(1, 2, |n, page| print(n))", "parallel: the items must be an array, not an integer"),
        ("parallel([1], 0, |n, page| print(n))", "parallel takes 1 to 16 workers, not 0"),
        ("parallel([1], 17, |n, page| print(n))", "parallel takes 1 to 16 workers, not 17"),
        (
            "parallel([1], \"2\", |n, page| print(n))",
            "parallel: the number of workers must be an integer, not a string",
        ),
        ("parallel([1], 2, 3)", "parallel: the function must be `|item, page| …`, not an integer"),
        ("parallel([1], 2, |a, b, c| print(a))", "parallel: the function must take (item, page), not 3 parameters"),
    ] {
        let (ended, text) = run(source);
        let fault = ended.fault.unwrap();

        assert_eq!(
            (fault.code, fault.message.as_str(), text.as_str()),
            (FaultCode::BadParams, message, ""),
            "{source}"
        );
    }
    assert!(hint("parallel([1], 2)").contains("(items, workers, |item, page| …)"));
}

#[test]
fn parallel_inside_parallel_is_refused() {
    let error = output("parallel([1], 1, |n, page| parallel([2], 1, |m, page| m))[0].error.message");

    assert_eq!(error, "`parallel` inside a function that `parallel` runs\n");
}

#[test]
fn what_cannot_be_caught_ends_all_workers_and_the_script() {
    for (work, code) in [
        ("let s = \"x\"; loop { s += s; }", FaultCode::Limit),
        ("let a = []; loop { a.push(\"some text or other\"); }", FaultCode::Limit),
        ("let s = \"\"; s.pad(2000000000, \"x\");", FaultCode::Limit),
        ("dive(1)", FaultCode::Limit),
    ] {
        // The others would go on for ever.
        let source = format!(
            "fn dive(n) {{ dive(n + 1) }} try {{ parallel([0, 1, 2, 3], 4, |n, page| {{ if n == 2 {{ {work} }} try {{ sleep(3600) }} catch {{ }} sleep(3600) }}) }} catch {{}} 1"
        );

        assert_eq!(fault(&source).code, code, "{work}");
    }
}

#[test]
fn one_script_has_one_memory_however_many_workers() {
    // Each alone holds half of what a script may.
    let hold = |held: usize, workers: usize| {
        format!("parallel([1, 2, 3, 4], {workers}, |n, page| {{ let held = blob({held}); held.len() }}).len()")
    };
    let keep = "parallel([1, 2, 3, 4], 2, |n, page| blob(15000000)).len()";
    let copies =
        "let big = blob(10000000); parallel([1, 2, 3, 4, 5], 5, |n, page| { if big.len() == 0 { 1 } sleep(3600) })";

    assert_eq!(output(&hold(MEMORY / 2, 1)), "4\n");
    assert_eq!(fault(keep).code, FaultCode::Limit);
    assert_eq!(fault(copies).code, FaultCode::Limit);
    let freed = format!("for n in 0..8 {{ {}; }} 1", "parallel([1, 2], 2, |n, page| blob(10000000))");
    assert_eq!(output(&freed), "1\n");
}

#[test]
fn exit_in_a_worker_is_the_value_of_the_script() {
    assert_eq!(output("parallel([1, 2], 2, |n, page| { if n == 2 { exit(\"found\") } sleep(3600) }); 3"), "found\n");
}

#[test]
fn lines_of_workers_are_whole() {
    let (ended, text) = run("let text = \"\"; text.pad(2000, \"x\"); let items = []; items.pad(64, text); \
        parallel(items, 8, |text, page| print(text));");

    assert_eq!(ended.fault, None);
    assert_eq!(text.lines().filter(|line| line.len() == 2000).count(), 64);
}

#[test]
fn a_cancel_and_a_deadline_end_all_workers() {
    let source =
        "print(1); try { parallel([1, 2, 3, 4], 3, |n, page| { try { sleep(3600) } catch { } loop {} }) } catch { } 1";
    let late = Script { deadline: Some(Instant::now() + Duration::from_millis(50)), ..script(source) };

    assert_eq!(cancelled_after(source, Cancel::new(), CancelReason::Interrupted).code, FaultCode::Cancelled);
    let ended = run_without_browser(late, MEMORY, Cancel::new(), Arc::new(Paper::default()));
    assert_eq!(ended.fault.unwrap().code, FaultCode::Deadline);
}

#[test]
fn workers_run_at_once() {
    // The first worker prints and waits for the other's line: one after the other would never end.
    let paper = Arc::new(Paper::default());
    let cancel = Cancel::new();
    let ended = std::thread::scope(|threads| {
        let source = "parallel([1, 2, 3], 3, |n, page| { print(n); sleep(3600) });";
        let running = threads.spawn(|| run_without_browser(script(source), MEMORY, cancel.clone(), paper.clone()));
        while paper.text.lock().unwrap().lines().count() < 3 {
            std::thread::yield_now();
        }
        cancel.cancel(CancelReason::Interrupted);
        running.join().unwrap()
    });

    assert_eq!(ended.fault.unwrap().code, FaultCode::Cancelled);
}

#[test]
fn deep_values_go_in_and_come_out_and_are_dropped() {
    let levels = format!("a = {}a{};", "[".repeat(20), "]".repeat(20));
    let deep = |times: u32| format!("let a = []; for i in 0..{times} {{ {levels} }}");

    assert_eq!(output(&format!("{} parallel([1], 1, |n, page| {{ a }})[0].ok", deep(100))), "true\n");
    assert_eq!(fault(&format!("{} parallel([1], 1, |n, page| {{ a }})[0].ok", deep(520))).code, FaultCode::Limit);
    assert_eq!(output(&format!("parallel([1], 1, |n, page| {{ {} a }})[0].ok", deep(520))), "true\n");
}
