use super::*;
use crate::wire::FaultCode;

fn knowing(secrets: &[&str]) -> Redactor {
    let redactor = Redactor::new();
    for secret in secrets {
        redactor.learn(&Secret::new((*secret).to_owned()));
    }
    redactor
}

#[test]
fn a_known_secret_is_taken_out_in_every_spelling() {
    let redactor = knowing(&["t/k\"n é?", "plain%2Ftext"]);

    for (text, clean) in [
        ("a t/k\"n é? b", "a [redacted] b"),
        ("t%2Fk%22n%20%C3%A9%3F", "[redacted]"),
        ("t%2fk%22n%20%c3%a9%3f", "[redacted]"),
        (r#"{"x":"t/k\"n é?"}"#, r#"{"x":"[redacted]"}"#),
        (r#"{"x":"{\"y\":\"t/k\\\"n é?\"}"}"#, r#"{"x":"{\"y\":\"[redacted]\"}"}"#),
        ("plain%2Ftext plain/text", "[redacted] [redacted]"),
        ("plain%252Ftext", "[redacted]"),
        ("t/k\"n é?t/k\"n é?", "[redacted][redacted]"),
    ] {
        assert_eq!(redactor.output(text), clean);
        assert_eq!(redactor.error(text), clean);
    }
}

#[test]
fn secrets_that_overlap_leave_nothing_of_either() {
    let redactor = knowing(&["abcdefgh", "efghijkl", "abcdefghijklmnop"]);

    assert_eq!(redactor.output("<abcdefghijkl>"), "<[redacted]>");
    assert_eq!(redactor.output("<abcdefghijklmnop>"), "<[redacted]>");
}

#[test]
fn a_short_secret_costs_no_innocent_text() {
    assert_eq!(knowing(&["short", ""]).output("a short text"), "a short text");
}

#[test]
fn text_without_a_secret_is_not_copied() {
    let redactor = knowing(&["apify_canary"]);

    assert!(matches!(redactor.output("nothing here"), Cow::Borrowed(_)));
    assert!(matches!(redactor.error("nothing here"), Cow::Borrowed(_)));
}

#[test]
fn clones_share_what_is_learned() {
    let redactor = Redactor::new();
    let clone = redactor.clone();

    redactor.learn(&Secret::new("apify_canary".to_owned()));

    assert_eq!(clone.output("apify_canary"), REDACTED);
}

#[test]
fn output_keeps_what_a_page_says() {
    let text = "https://shop.example/?q=shoes&token=theirs authorization: Bearer theirs";

    assert_eq!(knowing(&["apify_canary"]).output(text), text);
}

#[test]
fn the_credentials_of_a_url_are_learned_from_its_query() {
    let redactor = Redactor::new();

    redactor.learn_query(&Secret::new(
        "https://gateway.example/x?lang=english&api_key=can%2Fary1&token=canary22#token=fragment1".to_owned(),
    ));

    assert_eq!(
        redactor.output("english can/ary1 can%2Fary1 canary22 fragment1"),
        "english [redacted] [redacted] [redacted] fragment1"
    );
}

#[test]
fn a_secret_url_is_taken_out_whole() {
    let redactor = Redactor::new();

    redactor.learn_url(&Secret::new("wss://h.example/devtools/browser/9?token=canary1".to_owned()));

    assert_eq!(
        redactor.output("at wss://h.example/devtools/browser/9?token=canary1, canary1"),
        "at [redacted], [redacted]"
    );
}

#[test]
fn a_fault_loses_secrets_in_every_text_that_it_holds() {
    let fault = Fault::new(FaultCode::Usage, "a canary22").hint("b canary22");
    let fault = fault.with("deep", vec!["c canary22".to_owned()]).with("line", 7);

    let clean = serde_json::to_string(&knowing(&["canary22"]).fault(fault)).unwrap();

    assert!(!clean.contains("canary22"), "{clean}");
    assert_eq!(clean.matches(REDACTED).count(), 3);
}

#[test]
fn our_errors_lose_what_looks_like_a_credential() {
    let redactor = Redactor::new();

    for (text, clean) in [
        ("cannot load https://shop.example/a?q=1&s=2#top now", "cannot load https://shop.example/a?[redacted]#top now"),
        ("(wss://h/x?id=9)", "(wss://h/x?[redacted])"),
        ("via http://user:pass@proxy:3128/", "via http://[redacted]@proxy:3128/"),
        ("access_token=abcdefgh&x=1", "access_token=[redacted]&x=1"),
        (r#"{"apiKey":"abcdefgh","a":1}"#, r#"{"apiKey":"[redacted]","a":1}"#),
        ("let token = \"abcdefgh\";", "let token = \"[redacted]\";"),
        ("Authorization: Bearer abc def\nnext", "Authorization: [redacted]\nnext"),
        ("#{key: \"abcdefgh", "#{key: \"[redacted]"),
    ] {
        assert_eq!(redactor.error(text), clean);
    }
}

#[test]
fn our_errors_keep_what_only_resembles_a_credential() {
    let redactor = Redactor::new();

    for text in [
        "unexpected token: end of input",
        "#{key: \"Enter\"}",
        "if token == \"abcdefgh\" {",
        "https://shop.example/path#part",
        "input::key::press",
        "nothing? no: nothing",
        "token",
        "token=",
        "é=: ü",
    ] {
        assert_eq!(redactor.error(text), text);
    }
}
