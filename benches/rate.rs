//! How many CDP calls a script makes in a second, as a part of what a bare client makes on the same browser.
//!
//! Rounds of both alternate in one run; the ratios are of medians.

mod bare;
#[path = "../tests/support/mod.rs"]
mod support;

use bare::{Bare, Browser, median, row};
use support::{Answer, FakeGateway, Sandbox};

const ROUNDS: usize = 5;
const CALLS: usize = 3000;

/// One thing that is asked again and again.
struct Question {
    what: &'static str,
    method: &'static str,
    params: &'static str,
    on_page: bool,
    script: &'static str,
    /// Floor and goal over the WebSocket, and over the pipe.
    aims: [(f64, f64); 2],
}

const QUESTIONS: [Question; 2] = [
    Question {
        what: "cdp(\"Browser.getVersion\")",
        method: "Browser.getVersion",
        params: "{}",
        on_page: false,
        script: "cdp(\"Browser.getVersion\")",
        aims: [(0.60, 0.80), (0.80, 1.05)],
    },
    Question {
        what: "js(\"1+1\")",
        method: "Runtime.evaluate",
        params: "{\"expression\":\"1+1\"}",
        on_page: true,
        script: "js(\"1+1\")",
        aims: [(0.82, 0.93), (0.90, 1.05)],
    },
];

fn main() {
    let browser = Browser::start();
    let gateway = FakeGateway::start();
    gateway.always_answers_allocations_with(Answer::browser().url(&browser.url));
    let socket = Sandbox::of(&gateway);
    let pipe = Sandbox::local();
    let mut bare = Bare::websocket(&browser.url);
    let mut bare_pipe = Bare::pipe(pipe.root());

    for question in &QUESTIONS {
        let session = question.on_page.then(|| bare.page());
        let pipe_session = question.on_page.then(|| bare_pipe.page());
        let (mut by_bare, mut by_bare_pipe, mut by_socket, mut by_pipe) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            by_bare.push(bare.rate(CALLS, question.method, question.params, session.as_deref()));
            by_socket.push(script_rate(&socket, question.script));
            by_bare_pipe.push(bare_pipe.rate(CALLS, question.method, question.params, pipe_session.as_deref()));
            by_pipe.push(script_rate(&pipe, question.script));
        }
        let bare = median(by_bare);
        let per_second = |rate: f64| format!("{rate:.0} /s");
        let against = format!("bare {}", per_second(bare));
        row(&format!("bare pipe, {}", question.method), per_second(median(by_bare_pipe)), &against, None, 0.0, 0.0);
        for (name, rate, (floor, goal)) in
            [("WebSocket", median(by_socket), question.aims[0]), ("pipe", median(by_pipe), question.aims[1])]
        {
            row(&format!("{}, {name}", question.what), per_second(rate), &against, Some(rate / bare), floor, goal);
        }
    }
    pipelined(&mut bare, &socket);
}

fn pipelined(bare: &mut Bare, socket: &Sandbox) {
    let (mut by_bare, mut by_script) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        by_bare.push(bare.pipelined_rate(1000, "Browser.getVersion"));
        let script = "let calls = []; for i in 0..1000 { calls.push([\"Browser.getVersion\"]); } \
             let t = timestamp(); cdp_all(calls); print(1000.0 / t.elapsed)";
        by_script.push(number(socket, script));
    }
    let (bare, script) = (median(by_bare), median(by_script));
    row("cdp_all of 1,000", format!("{script:.0} /s"), &format!("bare {bare:.0} /s"), Some(script / bare), 0.7, 0.9);
}

fn script_rate(sandbox: &Sandbox, call: &str) -> f64 {
    number(
        sandbox,
        &format!("ensure_page(); let t = timestamp(); for i in 0..{CALLS} {{ {call}; }} print({CALLS}.0 / t.elapsed)"),
    )
}

fn number(sandbox: &Sandbox, script: &str) -> f64 {
    let said = sandbox.script(script);
    said.stdout.trim().parse().unwrap_or_else(|_| panic!("{said:#?}"))
}
