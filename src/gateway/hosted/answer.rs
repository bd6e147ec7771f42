//! What an answer means: which browser it names, and whether one may exist that it does not name.

use percent_encoding::percent_decode_str;
use serde_json::Value;
use url::Url;

use super::base::BaseUrl;
use super::request::Answer;
use crate::proxy;
use crate::secret::Secret;

/// Where the body holds the WebSocket URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `GET /json/version`: at the top.
    Plain,
    /// `POST …/browser`: under `cdp`.
    Country,
}

/// What an answer brought.
#[derive(Debug, PartialEq)]
pub(super) enum Brought {
    /// A browser, whole.
    Browser { id: Secret, websocket: Url },
    /// A browser that is named, in an answer that is no use otherwise.
    IdOnly(Secret),
    /// A browser that can be reached and is not named.
    UrlOnly(Url),
    /// Nothing; a browser may exist all the same.
    Uncertain,
    /// Nothing, and no browser exists.
    Nothing,
}

impl Brought {
    pub(super) fn read(answer: &Answer, shape: Shape, base: &BaseUrl) -> Self {
        if !answer.is_success() {
            return match &answer.browser_id {
                Some(id) => Self::IdOnly(id.clone()),
                None if may_have_allocated(answer.status) => Self::Uncertain,
                None => Self::Nothing,
            };
        }
        let body = Body::read(answer.body.as_deref(), shape);
        let url = body.url.filter(|url| is_safe(url, base));
        let named = body.id.or_else(|| answer.browser_id.clone());
        match (named.or(body.path_id), url) {
            (Some(id), Some(websocket)) if body.is_well_typed => Self::Browser { id, websocket },
            (Some(id), _) => Self::IdOnly(id),
            (None, Some(websocket)) => Self::UrlOnly(websocket),
            (None, None) => Self::Uncertain,
        }
    }
}

/// Whether a status without an id leaves open that a browser was allocated.
fn may_have_allocated(status: u16) -> bool {
    !matches!(status, 300..=407 | 409..=499 | 503)
}

/// A bearer URL travels encrypted, unless both ends are this machine.
fn is_safe(url: &Url, base: &BaseUrl) -> bool {
    match url.scheme() {
        "wss" => true,
        "ws" => base.is_loopback() && proxy::is_loopback(url),
        _ => false,
    }
}

/// What can be made out in a body.
#[derive(Default)]
struct Body {
    id: Option<Secret>,
    /// A URL with a host, of any scheme.
    url: Option<Url>,
    path_id: Option<Secret>,
    is_well_typed: bool,
}

impl Body {
    fn read(bytes: Option<&[u8]>, shape: Shape) -> Self {
        let json = bytes.and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
        let Some(Value::Object(fields)) = json else {
            return Self::default();
        };
        let id = fields.get("browserId").unwrap_or(&Value::Null);
        let holder = match shape {
            Shape::Plain => Some(&fields),
            Shape::Country => fields.get("cdp").and_then(Value::as_object),
        };
        let url = holder
            .and_then(|holder| holder.get("webSocketDebuggerUrl")?.as_str())
            .and_then(|text| Url::parse(text).ok())
            .filter(|url| url.host_str().is_some_and(|host| !host.is_empty()));
        Self {
            path_id: url.as_ref().and_then(id_in_path),
            url,
            is_well_typed: matches!(id, Value::Null | Value::String(_)),
            id: id.as_str().filter(|id| !id.is_empty()).map(|id| Secret::new(id.to_owned())),
        }
    }
}

/// The last segment of a path that ends in exactly `/devtools/browser/{id}`.
fn id_in_path(url: &Url) -> Option<Secret> {
    let (_, id) = url.path().rsplit_once("/devtools/browser/")?;
    if id.is_empty() || id.contains('/') {
        return None;
    }
    let id = percent_decode_str(id).decode_utf8().ok()?;
    Some(Secret::new(id.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "wss://b.example/devtools/browser/path%2Did?token=t";

    fn hosted() -> BaseUrl {
        BaseUrl::parse("https://gate.example/x", "X").unwrap()
    }

    fn loopback() -> BaseUrl {
        BaseUrl::parse("http://127.0.0.1:1", "X").unwrap()
    }

    fn ok(header: Option<&str>, body: &str) -> Answer {
        Answer {
            status: 200,
            browser_id: header.map(|id| Secret::new(id.to_owned())),
            retry_after: None,
            body: Some(body.as_bytes().to_vec()),
        }
    }

    fn plain(url: &str, id: &str) -> String {
        format!(r#"{{"webSocketDebuggerUrl":{url},"browserId":{id}}}"#)
    }

    /// `browser ID`, `id ID`, `url`, `uncertain`, `nothing`.
    fn told(brought: &Brought) -> String {
        match brought {
            Brought::Browser { id, .. } => format!("browser {}", id.expose()),
            Brought::IdOnly(id) => format!("id {}", id.expose()),
            Brought::UrlOnly(_) => "url".into(),
            Brought::Uncertain => "uncertain".into(),
            Brought::Nothing => "nothing".into(),
        }
    }

    fn read(answer: &Answer) -> String {
        told(&Brought::read(answer, Shape::Plain, &hosted()))
    }

    #[test]
    fn the_body_names_the_browser_then_the_header_then_the_path() {
        let url = format!("\"{URL}\"");

        assert_eq!(read(&ok(Some("head"), &plain(&url, "\"body\""))), "browser body");
        assert_eq!(read(&ok(Some("head"), &plain(&url, "null"))), "browser head");
        assert_eq!(read(&ok(Some("head"), &plain(&url, "\"\""))), "browser head");
        assert_eq!(read(&ok(None, &plain(&url, "null"))), "browser path-id");
    }

    #[test]
    fn a_path_names_a_browser_only_at_its_very_end() {
        for (path, brought) in [
            ("/devtools/browser/a%2Fb", "browser a/b"),
            ("/prefix/devtools/browser/a", "browser a"),
            ("/devtools/browser/a/", "url"),
            ("/devtools/browser/", "url"),
            ("/devtools/browser/%ff", "url"),
            ("/devtools/page/a", "url"),
            ("/a", "url"),
        ] {
            let body = plain(&format!("\"wss://b.example{path}\""), "null");

            assert_eq!(read(&ok(None, &body)), brought, "{path}");
        }
    }

    #[test]
    fn a_broken_body_with_an_id_is_an_id_and_without_one_is_uncertain() {
        for body in [
            "",
            "not json",
            "[]",
            "{}",
            r#"{"webSocketDebuggerUrl":7}"#,
            r#"{"webSocketDebuggerUrl":"b.example"}"#,
            r#"{"webSocketDebuggerUrl":"ws://b.example/"}"#,
            r#"{"webSocketDebuggerUrl":"https://b.example/"}"#,
            r#"{"cdp":{"webSocketDebuggerUrl":"wss://b.example/"}}"#,
        ] {
            assert_eq!(read(&ok(Some("head"), body)), "id head", "{body}");
            assert_eq!(read(&ok(None, body)), "uncertain", "{body}");
        }
        let cut = Answer { body: None, ..ok(Some("head"), "") };
        assert_eq!(read(&cut), "id head");
        assert_eq!(read(&ok(None, r#"{"webSocketDebuggerUrl":"ws://b.example/devtools/browser/p"}"#)), "id p");
        assert_eq!(read(&ok(Some("head"), &plain(&format!("\"{URL}\""), "7"))), "id head");
    }

    #[test]
    fn a_plain_websocket_is_taken_only_when_both_ends_are_this_machine() {
        let near = ok(Some("i"), &plain("\"ws://localhost:1/\"", "null"));
        let far = ok(Some("i"), &plain("\"ws://b.example/\"", "null"));
        let told = |answer, base: &BaseUrl| told(&Brought::read(answer, Shape::Plain, base));

        assert_eq!(told(&near, &loopback()), "browser i");
        assert_eq!(told(&near, &hosted()), "id i");
        assert_eq!(told(&far, &loopback()), "id i");
    }

    #[test]
    fn a_country_answer_holds_its_url_under_cdp() {
        let body = format!(r#"{{"browserId":"b","cdp":{{"webSocketDebuggerUrl":"{URL}"}}}}"#);

        let brought = Brought::read(&ok(Some("head"), &body), Shape::Country, &hosted());

        assert_eq!(told(&brought), "browser b");
    }

    #[test]
    fn of_another_status_only_the_header_counts() {
        let body = plain(&format!("\"{URL}\""), "\"body\"");
        for status in [302, 307, 400, 401, 403, 404, 408, 429, 500, 502, 503, 504] {
            let named = Answer { status, ..ok(Some("head"), &body) };
            let unnamed = Answer { status, ..ok(None, &body) };
            let expected = match status {
                408 | 500 | 502 | 504 => "uncertain",
                _ => "nothing",
            };

            assert_eq!(read(&named), "id head", "{status}");
            assert_eq!(read(&unnamed), expected, "{status}");
        }
    }
}
