//! How many CDP calls a script makes in a second, as a part of what a bare client makes on the same browser.
//!
//! Rounds of both alternate in one run; a ratio is the median of the rounds' own, because a machine's speed changes from
//! one second to the next.

mod bare;
#[path = "../tests/support/mod.rs"]
mod support;

use bare::{Bare, Browser, median, row};
use support::{Answer, FakeGateway, Sandbox};

const ROUNDS: usize = 15;
const CALLS: usize = 2000;

/// What precedes the calls that are timed: a rate is that of a loop that runs, not of its start.
const BEFORE: usize = 500;

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
            by_bare.push(bare_rate(&mut bare, question, session.as_deref()));
            by_socket.push(script_rate(&socket, question.script));
            by_bare_pipe.push(bare_rate(&mut bare_pipe, question, pipe_session.as_deref()));
            by_pipe.push(script_rate(&pipe, question.script));
        }
        let per_second = |rates: &[f64]| format!("{:.0} /s", median(rates.to_vec()));
        let against = format!("bare {}", per_second(&by_bare));
        row(&format!("bare pipe, {}", question.method), per_second(&by_bare_pipe), &against, None, 0.0, 0.0);
        for (name, rates, (floor, goal)) in
            [("WebSocket", by_socket, question.aims[0]), ("pipe", by_pipe, question.aims[1])]
        {
            let ratio = ratio(&rates, &by_bare);
            row(&format!("{}, {name}", question.what), per_second(&rates), &against, Some(ratio), floor, goal);
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
    let ratio = ratio(&by_script, &by_bare);
    let (bare, script) = (median(by_bare), median(by_script));
    row("cdp_all of 1,000", format!("{script:.0} /s"), &format!("bare {bare:.0} /s"), Some(ratio), 0.7, 0.9);
}

/// How two that alternated compare.
fn ratio(rates: &[f64], against: &[f64]) -> f64 {
    median(rates.iter().zip(against).map(|(rate, against)| rate / against).collect())
}

fn bare_rate(bare: &mut Bare, question: &Question, session: Option<&str>) -> f64 {
    bare.rate(BEFORE, question.method, question.params, session);
    bare.rate(CALLS, question.method, question.params, session)
}

fn script_rate(sandbox: &Sandbox, call: &str) -> f64 {
    number(
        sandbox,
        &format!(
            "ensure_page(); for i in 0..{BEFORE} {{ {call}; }} \
             let t = timestamp(); for i in 0..{CALLS} {{ {call}; }} print({CALLS}.0 / t.elapsed)"
        ),
    )
}

fn number(sandbox: &Sandbox, script: &str) -> f64 {
    let said = sandbox.script(script);
    said.stdout.trim().parse().unwrap_or_else(|_| panic!("{said:#?}"))
}
