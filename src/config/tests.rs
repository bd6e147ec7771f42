use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt;

use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Settings, Fault> {
    let table: HashMap<_, _> = pairs.iter().copied().collect();
    Settings::from_env(&|name| table.get(name).map(OsString::from))
}

fn identity(pairs: &[(&str, &str)]) -> Identity {
    let table: HashMap<_, _> = pairs.iter().copied().collect();
    Identity::from_env(&|name| table.get(name).map(OsString::from))
}

fn key() -> SessionKey {
    serde_json::from_str("\"00ff\"").unwrap()
}

#[test]
fn nothing_set_means_the_hosted_gateway_and_the_documented_defaults() {
    let settings = read(&[]).unwrap();

    assert_eq!(settings.gateway.display_name(), "straightforward-under--ghost-gateway.apify.actor");
    assert_eq!(settings.idle, Duration::from_secs(600));
    assert_eq!(settings.allocation_timeout, Duration::from_secs(180));
    assert_eq!(settings.ws_timeout, Duration::from_secs(30));
    assert_eq!(settings.log, LogLevel::Error);
    assert_eq!(settings.chromium, ChromiumSettings::default());
    assert_eq!(settings.country, None);
    assert_eq!(settings.effective_token(), None);
}

#[test]
fn an_empty_value_is_unset() {
    let names = [
        "APIFY_TOKEN",
        "GHOST_GATEWAY_URL",
        "GHOST_STANDBY_URL",
        "GHOST_BROWSER_COUNTRY",
        "GHOST_BROWSER_NAME",
        "GHOST_BROWSER_IDLE_SECONDS",
        "GHOST_BROWSER_ALLOCATION_TIMEOUT",
        "GHOST_BROWSER_WS_TIMEOUT",
        "GHOST_BROWSER_RUNTIME_DIR",
        "GHOST_BROWSER_SECRETS",
        "GHOST_BROWSER_SECRET_CMD",
        "GHOST_BROWSER_CHROMIUM",
        "GHOST_BROWSER_CHROMIUM_ARGS",
        "GHOST_BROWSER_HEADED",
        "GHOST_BROWSER_PROFILE",
        "GHOST_BROWSER_LOG",
        "HTTPS_PROXY",
    ];
    let empty = names.map(|name| (name, ""));

    assert_eq!(read(&empty).unwrap(), read(&[]).unwrap());
    assert_eq!(identity(&empty), identity(&[]));
}

#[test]
fn a_bad_value_is_refused_by_name_and_not_repeated() {
    for (name, value) in [
        ("GHOST_GATEWAY_URL", "not-a-url-canary"),
        ("GHOST_GATEWAY_URL", "ftp://canary.example"),
        ("GHOST_STANDBY_URL", "canary"),
        ("GHOST_BROWSER_COUNTRY", "canary"),
        ("GHOST_BROWSER_COUNTRY", "é"),
        ("GHOST_BROWSER_NAME", "canary\n"),
        ("GHOST_BROWSER_IDLE_SECONDS", "0"),
        ("GHOST_BROWSER_IDLE_SECONDS", "-1"),
        ("GHOST_BROWSER_IDLE_SECONDS", "NaN"),
        ("GHOST_BROWSER_ALLOCATION_TIMEOUT", "inf"),
        ("GHOST_BROWSER_ALLOCATION_TIMEOUT", "31536001"),
        ("GHOST_BROWSER_WS_TIMEOUT", "5s canary"),
        ("GHOST_BROWSER_SECRETS", "A,B@canary"),
        ("GHOST_BROWSER_SECRETS", "canary x"),
        ("GHOST_BROWSER_CHROMIUM_ARGS", "--a='canary"),
        ("GHOST_BROWSER_CHROMIUM_ARGS", "--lang=de --user-data-dir=/canary"),
        ("GHOST_BROWSER_CHROMIUM_ARGS", "-remote-debugging-port=canary"),
        ("GHOST_BROWSER_HEADED", "canary"),
        ("GHOST_BROWSER_LOG", "canary"),
    ] {
        let fault = read(&[(name, value)]).unwrap_err();

        assert_eq!(fault.code, FaultCode::Setting);
        assert!(fault.message.starts_with(name), "{}", fault.message);
        assert!(!format!("{fault:?}").contains("canary"), "{fault:?}");
    }
}

#[test]
fn a_value_that_is_not_text_is_refused_by_name() {
    let fault = Settings::from_env(&|name| (name == "APIFY_TOKEN").then(|| OsString::from_vec(vec![b'a', 0xff])));

    assert_eq!(fault.unwrap_err().message, "APIFY_TOKEN has a bad value: it is not UTF-8");
}

#[test]
fn lengths_of_time_may_be_fractions() {
    for (text, expected) in [("0.25", 0.25), ("1e2", 100.0), ("31536000", 31_536_000.0), (" 5 ", 5.0)] {
        let settings = read(&[("GHOST_BROWSER_WS_TIMEOUT", text)]).unwrap();

        assert_eq!(settings.ws_timeout, Duration::from_secs_f64(expected));
    }
}

#[test]
fn the_gateway_is_the_first_that_is_set() {
    for (pairs, expected) in [
        (&[("GHOST_GATEWAY_URL", "local")][..], "local"),
        (&[("GHOST_GATEWAY_URL", "https://A.example"), ("GHOST_STANDBY_URL", "local")], "a.example"),
        (&[("GHOST_STANDBY_URL", "http://127.0.0.1:8080/x?token=canary")], "127.0.0.1:8080"),
    ] {
        assert_eq!(read(pairs).unwrap().gateway.display_name(), expected);
    }
}

#[test]
fn a_gateway_is_the_same_one_however_its_base_is_written() {
    let of = |url| identity(&[("GHOST_GATEWAY_URL", url)]).gateway;

    assert_eq!(of("https://H.example/p/?token=a#x"), "https://h.example/p");
    assert_eq!(of("https://h.example:443/p"), "https://h.example/p");
    assert_ne!(of("https://h.example/q"), of("https://h.example/p"));
    assert_eq!(of("local"), "local");
    assert_eq!(of("not a url"), "not a url");
}

#[test]
fn an_identity_can_be_had_beside_bad_settings() {
    let found = identity(&[("GHOST_BROWSER_NAME", "shop"), ("GHOST_BROWSER_LOG", "loud")]);

    assert_eq!(found.name, "shop");
    assert_eq!(identity(&[]).name, "default");
}

#[test]
fn the_token_in_the_base_wins() {
    let token = |pairs: &[(&str, &str)]| {
        let token = read(pairs).unwrap().effective_token();
        token.map(|token| token.expose().to_owned())
    };
    let own = ("APIFY_TOKEN", "mine");

    assert_eq!(token(&[own]), Some("mine".to_owned()));
    assert_eq!(token(&[own, ("GHOST_GATEWAY_URL", "https://h/?a=b&token=th%2Firs")]), Some("th/irs".to_owned()));
    assert_eq!(token(&[own, ("GHOST_GATEWAY_URL", "https://h/?token=")]), Some("mine".to_owned()));
    assert_eq!(token(&[own, ("GHOST_GATEWAY_URL", "local")]), None);
}

#[test]
fn a_credential_tells_tokens_apart_and_nothing_of_them() {
    let credential = |token| read(&[("APIFY_TOKEN", token)]).unwrap().credential(&key());

    assert_eq!(credential("canary"), credential("canary"));
    assert_ne!(credential("canary"), credential("canary2"));
    assert!(!credential("canary").unwrap().contains("canary"));
    assert_eq!(credential(""), None);
    let other: SessionKey = serde_json::from_str("\"0100\"").unwrap();
    let settings = read(&[("APIFY_TOKEN", "canary")]).unwrap();
    assert_ne!(settings.credential(&other), settings.credential(&key()));
}

#[test]
fn the_digest_tells_what_the_daemon_keeps_and_no_more() {
    let digest = |pairs: &[(&str, &str)]| read(pairs).unwrap().digest();
    let hosted = digest(&[]);
    let local = ("GHOST_GATEWAY_URL", "local");

    for same in [
        ("APIFY_TOKEN", "canary"),
        ("GHOST_BROWSER_SECRETS", "SHOP_PW"),
        ("GHOST_BROWSER_HEADED", "1"),
        ("PATH", "/elsewhere"),
    ] {
        assert_eq!(digest(&[same]), hosted, "{same:?}");
    }
    for other in [("GHOST_BROWSER_COUNTRY", "KR"), ("GHOST_BROWSER_IDLE_SECONDS", "5"), ("GHOST_BROWSER_LOG", "debug")]
    {
        assert_ne!(digest(&[other]), hosted, "{other:?}");
    }
    assert_ne!(digest(&[local, ("GHOST_BROWSER_HEADED", "1")]), digest(&[local]));
}

#[test]
fn settings_for_the_daemon_come_back_whole_but_for_the_callers_secrets() {
    let settings = read(&[
        ("APIFY_TOKEN", "canary"),
        ("GHOST_BROWSER_COUNTRY", "kr"),
        ("GHOST_BROWSER_CHROMIUM_ARGS", "--a=\"b c\" 'd'\\ e"),
        ("GHOST_BROWSER_CHROMIUM", "chrome"),
        ("GHOST_BROWSER_PROFILE", "/p"),
        ("https_proxy", "http://u:p@proxy:1"),
        ("NO_PROXY", "localhost"),
        ("PATH", "/bin"),
    ])
    .unwrap();

    let back: Settings = serde_json::from_str(&serde_json::to_string(&settings).unwrap()).unwrap();

    assert_eq!(back, settings);
    assert_eq!(back.country.as_deref(), Some("KR"));
    assert_eq!(back.chromium.args, ["--a=b c", "d e"]);
    assert_eq!(back.environment["PATH"], "/bin");
    assert!(!format!("{back:?}").contains("canary"));
}

#[test]
fn a_secret_may_be_bound_to_an_origin() {
    let settings = read(&[("GHOST_BROWSER_SECRETS", " A , B@https://Shop.example/x ,")]).unwrap();

    let allowed = settings.secrets.allowed;
    assert_eq!((allowed[0].name.as_str(), allowed[0].origin.as_deref()), ("A", None));
    assert_eq!((allowed[1].name.as_str(), allowed[1].origin.as_deref()), ("B", Some("https://shop.example")));
}

#[test]
fn paths_become_absolute_and_program_names_stay() {
    let settings = read(&[("GHOST_BROWSER_CHROMIUM", "./chrome"), ("GHOST_BROWSER_PROFILE", "profile")]).unwrap();

    assert!(settings.chromium.program.unwrap().is_absolute());
    assert!(settings.chromium.profile.unwrap().is_absolute());
}
