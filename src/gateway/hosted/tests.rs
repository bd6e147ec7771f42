//! The contract, against a server that keeps a ledger.

pub(crate) mod server;

use std::thread;
use std::time::{Duration, Instant};

use self::server::{Deed, Server, say};
use super::{BaseUrl, Config, Hosted};
use crate::cancel::{Cancel, CancelReason};
use crate::gateway::{Allocation, Ask, Capability, Endpoint, Gateway, ReleaseError, RequestLeft};
use crate::proxy::Proxies;
use crate::secret::Secret;
use crate::wire::{Fault, FaultCode};

const BROWSER: &str = "X-Ghost-Session: canary-id\r\n";
const NO_HEADERS: &str = "";
const URL: &str = r#"{"webSocketDebuggerUrl":"ws://127.0.0.1:9/devtools/browser/x?token=canary-ws"}"#;
/// A URL whose path names no browser.
const BARE: &str = r#"{"webSocketDebuggerUrl":"ws://127.0.0.1:9/canary"}"#;

fn secret(text: &str) -> Secret {
    Secret::new(text.to_owned())
}

fn config(base: &str) -> Config {
    Config {
        base: BaseUrl::parse(base, "GHOST_GATEWAY_URL").unwrap(),
        token: Some(secret("canary t&k")),
        country: None,
        proxies: Proxies::default(),
    }
}

fn gateway(server: &Server) -> Hosted {
    Hosted::new(config(&format!("http://{}", server.authority()))).unwrap()
}

fn in_korea(server: &Server) -> Hosted {
    Hosted::new(Config { country: Some("KR".into()), ..config(&format!("http://{}", server.authority())) }).unwrap()
}

fn ask_for(wait: Duration) -> Ask {
    let deadline = Instant::now() + wait;
    Ask {
        deadline,
        last_word: deadline + Duration::from_secs(20),
        abandoned: Cancel::new(),
        prepared: None,
        left: RequestLeft::new(),
        on_retry: std::sync::Arc::new(drop),
    }
}

fn ask() -> Ask {
    ask_for(Duration::from_secs(20))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// The kind of an answer and its fault: `refused 3: gateway allocation failed: HTTP 401`.
fn told(allocation: &Allocation) -> String {
    let (kind, fault) = match allocation {
        Allocation::Granted(_) => return "granted".into(),
        Allocation::Refused(fault) => ("refused", fault),
        Allocation::Unusable(_, fault) => ("unusable", fault),
        Allocation::Stray(_, fault) => ("stray", fault),
        Allocation::Lost(fault) => ("lost", fault),
    };
    assert!(!format!("{fault:?}").contains("canary"), "{fault:?}");
    format!("{kind} {}: {fault}", fault.code.exit_code())
}

fn capability(allocation: Allocation) -> Capability {
    match allocation {
        Allocation::Granted(grant) => grant.capability,
        Allocation::Unusable(capability, _) => capability,
        other => panic!("no capability in {other:?}"),
    }
}

fn fault(error: ReleaseError) -> Fault {
    match error {
        ReleaseError::Failed(fault) | ReleaseError::Unprovable(fault) => fault,
    }
}

#[test]
fn a_browser_costs_one_request_and_is_released_at_its_own_server() {
    let browsers = Server::start([say(204, NO_HEADERS, "")]);
    let url = format!("ws://{}/devtools/browser/x?token=own&a=b", browsers.authority());
    let body = format!(r#"{{"webSocketDebuggerUrl":"{url}"}}"#);
    let server = Server::start([say(200, BROWSER, &body)]);
    let base = format!("http://{}/some/prefix/?x=1", server.authority());
    let gateway = Hosted::new(config(&base)).unwrap();

    let Allocation::Granted(grant) = gateway.allocate(&ask()) else {
        panic!("no browser");
    };
    grant.capability.release(false, soon()).unwrap();

    assert!(matches!(&grant.endpoint, Endpoint::WebSocket(own) if own.expose() == url));
    assert_eq!(server.ledger(), ["GET /some/prefix/json/version?x=1&token=canary%20t%26k"]);
    assert_eq!(browsers.ledger(), ["DELETE /v1/sessions/canary-id?token=own&a=b"]);
}

#[test]
fn a_token_in_the_base_wins_and_is_not_doubled() {
    let server = Server::start([say(401, NO_HEADERS, "")]);
    let base = format!("http://{}?t%6Fken=own&x=1", server.authority());

    let answer = Hosted::new(config(&base)).unwrap().allocate(&ask());

    assert_eq!(told(&answer), "refused 3: gateway allocation failed: HTTP 401");
    assert_eq!(server.ledger(), ["GET /json/version?t%6Fken=own&x=1"]);
}

#[test]
fn an_empty_token_in_the_base_is_none() {
    let server = Server::start([say(401, NO_HEADERS, "")]);
    let base = format!("http://{}?token=&x=1", server.authority());

    Hosted::new(config(&base)).unwrap().allocate(&ask());

    assert_eq!(server.ledger(), ["GET /json/version?x=1&token=canary%20t%26k"]);
    Hosted::new(config("https://gate.example?token=")).unwrap();
}

#[test]
fn every_answer_is_the_debt_that_the_contract_says() {
    let invalid = "gateway allocation returned an invalid response";
    let failed = "gateway allocation failed:";
    let cut = |headers: &str| Deed::Say(format!("HTTP/1.1 200 X\r\n{headers}Content-Length: 999\r\n\r\n{URL}"));
    let chunked =
        |headers: &str| Deed::Say(format!("HTTP/1.1 200 X\r\n{headers}Transfer-Encoding: chunked\r\n\r\n99\r\n{URL}"));
    let until_end = |headers: &str| {
        let half = &URL[..30];
        Deed::Say(format!("HTTP/1.1 200 X\r\n{headers}\r\n{half}"))
    };
    let large = format!("{}{URL}", " ".repeat(1 << 20));
    let insecure = r#"{"webSocketDebuggerUrl":"ws://b.example/"}"#;
    for (deed, expected) in [
        (say(302, "Location: http://127.0.0.1:9/\r\n", ""), format!("refused 3: {failed} HTTP 302")),
        (say(400, NO_HEADERS, URL), format!("refused 3: {failed} HTTP 400")),
        (say(403, NO_HEADERS, "canary"), format!("refused 3: {failed} HTTP 403")),
        (say(404, BROWSER, ""), format!("unusable 3: {failed} HTTP 404")),
        (say(429, BROWSER, ""), format!("unusable 3: {failed} HTTP 429")),
        (say(503, BROWSER, ""), format!("unusable 3: {failed} HTTP 503")),
        (say(408, NO_HEADERS, ""), format!("lost 5: {failed} HTTP 408")),
        (say(500, NO_HEADERS, URL), format!("lost 5: {failed} HTTP 500")),
        (say(504, NO_HEADERS, ""), format!("lost 5: {failed} HTTP 504")),
        (say(500, BROWSER, ""), format!("unusable 3: {failed} HTTP 500")),
        (Deed::End, format!("lost 5: {failed} connection closed")),
        (Deed::Reset, format!("lost 5: {failed} connection reset")),
        (Deed::Say("canary\r\n\r\n".into()), format!("lost 5: {failed} not an HTTP response")),
        (say(200, NO_HEADERS, "canary"), format!("lost 5: {invalid}")),
        (say(200, BROWSER, "canary"), format!("unusable 3: {invalid}")),
        (say(200, NO_HEADERS, BARE), format!("stray 5: {invalid}")),
        (say(200, BROWSER, BARE), "granted".into()),
        (say(200, NO_HEADERS, URL), "granted".into()),
        (say(200, BROWSER, insecure), format!("unusable 3: {invalid}")),
        (say(200, NO_HEADERS, insecure), format!("lost 5: {invalid}")),
        (say(200, BROWSER, &large), format!("unusable 3: {invalid}")),
        (say(200, NO_HEADERS, &large), format!("lost 5: {invalid}")),
        (cut(BROWSER), format!("unusable 3: {invalid}")),
        (cut(NO_HEADERS), format!("lost 5: {invalid}")),
        (chunked(BROWSER), format!("unusable 3: {invalid}")),
        (chunked(NO_HEADERS), format!("lost 5: {invalid}")),
        (until_end(BROWSER), format!("unusable 3: {invalid}")),
        (until_end(NO_HEADERS), format!("lost 5: {invalid}")),
    ] {
        let server = Server::start([deed]);

        let answer = gateway(&server).allocate(&ask());

        assert_eq!(told(&answer), expected);
        assert_eq!(server.ledger().len(), 1, "{expected}");
    }
}

#[test]
fn a_refused_token_is_hinted_at() {
    for status in [401, 403] {
        let server = Server::start([say(status, NO_HEADERS, "")]);

        let Allocation::Refused(fault) = gateway(&server).allocate(&ask()) else {
            panic!("not refused");
        };

        assert!(fault.hint.unwrap().contains("APIFY_TOKEN"));
    }
}

#[test]
fn what_cannot_have_allocated_is_asked_again_until_it_is_answered() {
    let wait = "Retry-After: 0\r\n";
    let server = Server::start([say(503, wait, ""), say(429, wait, ""), say(200, BROWSER, BARE)]);

    let (tell, reasons) = std::sync::mpsc::channel();
    let on_retry = std::sync::Arc::new(move |why| tell.send(why).unwrap());
    let answer = gateway(&server).allocate(&Ask { on_retry, ..ask() });

    assert_eq!(told(&answer), "granted");
    let reasons: Vec<_> = reasons.iter().collect();
    assert_eq!(reasons, ["gateway allocation failed: HTTP 503", "gateway allocation failed: HTTP 429"]);
    assert_eq!(server.ledger().len(), 3);
}

#[test]
fn a_retry_that_would_come_too_late_is_not_waited_for() {
    let server = Server::start([say(503, "Retry-After: 0\r\n", ""), say(429, "Retry-After: 3600\r\n", "")]);
    let asked = Instant::now();
    let ask = ask();

    let answer = gateway(&server).allocate(&ask);

    assert_eq!(told(&answer), "refused 3: gateway allocation failed: HTTP 429");
    assert!(asked.elapsed() < Duration::from_secs(10));
    assert!(!ask.left.is_raised());
    assert_eq!(server.ledger().len(), 2);
}

#[test]
fn nothing_is_asked_again_once_nobody_wants_it() {
    let ask = ask_for(Duration::from_secs(7200));
    let abandoned = ask.abandoned.clone();
    let put_off = Deed::Do(Box::new(move |stream| {
        let text = b"HTTP/1.1 503 X\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n";
        std::io::Write::write_all(stream, text).unwrap();
        abandoned.cancel(CancelReason::Stopped);
    }));
    let server = Server::start([put_off]);

    let answer = gateway(&server).allocate(&ask);

    assert_eq!(told(&answer), "refused 3: gateway allocation failed: HTTP 503");
    assert_eq!(server.ledger().len(), 1);
}

#[test]
fn a_browser_that_nobody_wants_is_not_asked_for() {
    let server = Server::start([]);
    let ask = ask();
    ask.abandoned.cancel(CancelReason::Stopped);

    let answer = gateway(&server).allocate(&ask);

    assert_eq!(told(&answer), "refused 3: gateway allocation failed: cancelled");
    assert!(!ask.left.is_raised());
    assert!(server.ledger().is_empty());
}

#[test]
fn a_gateway_that_is_not_there_costs_nothing() {
    let base = format!("http://{}", {
        let server = Server::start([]);
        server.authority()
    });
    let ask = ask_for(Duration::from_millis(300));

    let answer = Hosted::new(config(&base)).unwrap().allocate(&ask);

    assert_eq!(told(&answer), "refused 3: gateway allocation failed: connection refused");
    assert!(!ask.left.is_raised());
}

#[test]
fn an_answer_is_read_after_the_callers_have_gone() {
    let ask = ask_for(Duration::from_millis(100));
    let deadline = ask.deadline;
    let late = Deed::Do(Box::new(move |stream| {
        thread::sleep(deadline.saturating_duration_since(Instant::now()));
        let Deed::Say(text) = say(200, BROWSER, BARE) else {
            return;
        };
        std::io::Write::write_all(stream, text.as_bytes()).unwrap();
    }));
    let server = Server::start([late]);

    let answer = gateway(&server).allocate(&ask);

    assert!(Instant::now() > deadline);
    assert_eq!(told(&answer), "granted");
    assert!(ask.left.is_raised());
}

#[test]
fn silence_is_lost_at_the_last_word() {
    let server = Server::start([Deed::Silence]);
    let mut ask = ask();
    ask.last_word = Instant::now() + Duration::from_millis(100);

    let answer = gateway(&server).allocate(&ask);

    assert_eq!(told(&answer), "lost 5: gateway allocation failed: timed out");
    assert_eq!(server.ledger().len(), 1);
}

#[test]
fn a_country_takes_a_session_and_a_browser_in_it() {
    let url = "ws://127.0.0.1:9/canary";
    let body = format!(r#"{{"browserId":"a/b c","cdp":{{"webSocketDebuggerUrl":"{url}"}}}}"#);
    let server = Server::start([say(200, NO_HEADERS, r#"{"session":"s/1"}"#), say(200, BROWSER, &body)]);

    let answer = in_korea(&server).allocate(&ask());

    let secrets = capability(answer).secrets();
    assert_eq!(secrets[0].expose(), "a/b c");
    assert_eq!(secrets[1].expose(), url);
    assert_eq!(
        server.ledger(),
        [
            "POST /v1/sessions?token=canary%20t%26k {}",
            r#"POST /v1/sessions/s%2F1/browser?token=canary%20t%26k {"country":"KR"}"#,
        ]
    );
}

#[test]
fn a_session_without_a_browser_is_no_debt_and_is_given_back() {
    let session = || say(200, NO_HEADERS, r#"{"session":"canary"}"#);
    let creation = "gateway session creation";
    let allocation = "gateway allocation failed: HTTP";
    for (deeds, expected, requests) in [
        (vec![say(500, NO_HEADERS, "")], format!("refused 3: {creation} failed: HTTP 500"), 1),
        (vec![Deed::End], format!("refused 3: {creation} failed: connection closed"), 1),
        (
            vec![say(200, NO_HEADERS, r#"{"session":7}"#)],
            format!("refused 3: {creation} returned an invalid response"),
            1,
        ),
        (vec![say(500, BROWSER, "")], format!("unusable 3: {creation} failed: HTTP 500"), 1),
        (vec![session(), say(404, NO_HEADERS, "")], format!("refused 3: {allocation} 404"), 3),
        (vec![session(), say(500, NO_HEADERS, "")], format!("lost 5: {allocation} 500"), 3),
        (vec![session(), say(500, BROWSER, "")], format!("unusable 3: {allocation} 500"), 2),
        (
            vec![say(200, BROWSER, r#"{"session":"canary"}"#), say(400, NO_HEADERS, "")],
            format!("unusable 3: {allocation} 400"),
            3,
        ),
    ] {
        let server = Server::start(deeds);

        let answer = in_korea(&server).allocate(&ask());

        assert_eq!(told(&answer), expected);
        assert_eq!(server.ledger().len(), requests, "{expected}");
        if requests == 3 {
            assert_eq!(server.ledger()[2], "DELETE /v1/sessions/canary?token=canary%20t%26k");
        }
    }
}

#[test]
fn a_release_is_what_the_answer_proves() {
    for (deed, expected) in [
        (say(200, NO_HEADERS, ""), None),
        (say(204, NO_HEADERS, ""), None),
        (say(404, NO_HEADERS, ""), None),
        (say(410, NO_HEADERS, ""), None),
        (say(302, "Location: /\r\n", ""), Some("HTTP 302")),
        (say(401, NO_HEADERS, ""), Some("HTTP 401")),
        (say(500, NO_HEADERS, "canary"), Some("HTTP 500")),
        (Deed::End, Some("connection closed")),
        (Deed::Reset, Some("connection reset")),
    ] {
        let server = Server::start([say(500, BROWSER, ""), deed]);
        let capability = capability(gateway(&server).allocate(&ask()));

        let outcome = capability.release(false, soon()).map_err(fault);

        let expected = expected.map(|why| format!("gateway release failed: {why}"));
        assert_eq!(outcome.err().map(|fault| fault.message), expected);
        assert_eq!(server.ledger()[1], "DELETE /v1/sessions/canary-id?token=canary%20t%26k");
    }
}

#[test]
fn a_normal_close_is_proof_and_the_request_is_sent_all_the_same() {
    let server = Server::start([say(500, BROWSER, ""), say(500, NO_HEADERS, "")]);
    let capability = capability(gateway(&server).allocate(&ask()));

    capability.release(true, soon()).unwrap();

    assert_eq!(server.ledger().len(), 2);
}

#[test]
fn a_keeper_that_got_the_capability_over_a_pipe_can_release() {
    let server = Server::start([say(500, BROWSER, ""), say(204, NO_HEADERS, "")]);
    let sent = serde_json::to_vec(&capability(gateway(&server).allocate(&ask()))).unwrap();

    let received: Capability = serde_json::from_slice(&sent).unwrap();

    received.release(false, soon()).unwrap();
    assert_eq!(server.ledger().len(), 2);
}

#[test]
fn a_release_gives_up_at_its_deadline() {
    let server = Server::start([say(500, BROWSER, ""), Deed::Silence]);
    let capability = capability(gateway(&server).allocate(&ask()));

    let error = capability.release(false, Instant::now() + Duration::from_millis(100));

    assert_eq!(fault(error.unwrap_err()).message, "gateway release failed: timed out");
}

#[test]
fn settings_that_could_show_the_token_are_refused_without_showing_it() {
    for (url, said) in [
        ("http://canary.example", "https"),
        ("http://128.0.0.1/?token=canary", "https"),
        ("https://canary@gate.example", "user name"),
        ("https://:canary@gate.example", "user name"),
        ("wss://gate.example/?canary", "https URL"),
        ("canary", "https URL"),
        ("https://", "https URL"),
    ] {
        let fault = BaseUrl::parse(url, "GHOST_GATEWAY_URL").unwrap_err();

        assert_eq!(fault.code, FaultCode::Setting);
        assert!(fault.message.contains(said), "{url}: {fault}");
        assert!(fault.message.contains("GHOST_GATEWAY_URL"));
        assert!(!format!("{fault:?}").contains("canary"));
    }
    for url in ["http://localhost:1/a?b", "http://127.8.8.8", "http://[::1]:1", "https://a.b/c"] {
        BaseUrl::parse(url, "GHOST_GATEWAY_URL").unwrap();
    }
}

#[test]
fn a_base_is_shown_by_its_host_and_keyed_without_its_query() {
    let base = BaseUrl::parse("https://Gate.example:8443/p?token=canary&x=1#f", "X").unwrap();

    assert_eq!(base.host(), "gate.example:8443");
    assert_eq!(base.without_query(), "https://gate.example:8443/p");
    assert_eq!(format!("{base:?}"), r#"BaseUrl("gate.example:8443")"#);
    assert_eq!(base.secrets(), [secret("canary")]);
    let text = serde_json::to_string(&base).unwrap();
    assert_eq!(serde_json::from_str::<BaseUrl>(&text).unwrap(), base);
}

#[test]
fn a_gateway_beyond_this_machine_needs_a_token_from_somewhere() {
    let without = |base: &str| Config { token: None, ..config(base) };

    let fault = Hosted::new(without("https://gate.example?token=")).unwrap_err();

    assert_eq!(fault.code, FaultCode::Setting);
    assert_eq!(fault.message, "APIFY_TOKEN is required for the configured gateway");
    assert!(fault.hint.unwrap().contains("GHOST_GATEWAY_URL=local"));
    Hosted::new(without("https://gate.example?token=t")).unwrap();
    Hosted::new(without("http://localhost")).unwrap();
}

fn proxied(server: &Server) -> Config {
    let url = format!("http://user:canary@{}", server.authority());
    Config {
        proxies: Proxies::from_env(|name| (name == "HTTPS_PROXY").then(|| url.clone())),
        ..config("https://gate.example")
    }
}

#[test]
fn a_proxy_that_refuses_the_tunnel_is_a_connection_that_was_not_made() {
    let server = Server::start([say(407, NO_HEADERS, "")]);
    let ask = ask_for(Duration::from_millis(200));

    let answer = Hosted::new(proxied(&server)).unwrap().allocate(&ask);

    assert_eq!(told(&answer), "refused 3: gateway allocation failed: proxy");
    assert!(!ask.left.is_raised());
    assert_eq!(server.ledger(), ["CONNECT gate.example:443"]);
}

#[test]
fn a_gateway_that_does_not_speak_tls_never_sees_the_request() {
    let server = Server::start([Deed::Say("HTTP/1.1 200 OK\r\n\r\ncanary, not TLS".into())]);
    let ask = ask();

    let answer = Hosted::new(proxied(&server)).unwrap().allocate(&ask);

    assert_eq!(told(&answer), "refused 3: gateway allocation failed: TLS");
    assert!(!ask.left.is_raised());
    assert_eq!(server.ledger().len(), 1);
}
