//! Frames: writing a command, reading an envelope. What is inside stays text until somebody wants it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;
use tungstenite::Utf8Bytes;

use super::error::Refusal;
use crate::ids::{CallId, SessionId};

/// The id of every command whose reply nobody waits for: a browser that never answers leaves nothing behind.
pub(super) const UNAWAITED: CallId = CallId(0);

/// One command.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// `Domain.method`.
    pub method: &'a str,
    /// The JSON text of the object that CDP documents for `method`; `{}` for none.
    pub params: &'a str,
    /// The flat session; `None` for the browser target.
    pub session: Option<&'a SessionId>,
}

impl<'a> Call<'a> {
    /// A command to the browser target.
    pub fn browser(method: &'a str, params: &'a str) -> Self {
        Self { method, params, session: None }
    }

    /// The command as one frame.
    pub(super) fn frame(&self, id: CallId) -> String {
        let mut text = String::with_capacity(self.params.len() + self.method.len() + 96);
        text.push_str("{\"id\":");
        text.push_str(&id.0.to_string());
        text.push_str(",\"method\":");
        push_string(&mut text, self.method);
        text.push_str(",\"params\":");
        text.push_str(self.params);
        if let Some(session) = self.session {
            text.push_str(",\"sessionId\":");
            push_string(&mut text, session.as_str());
        }
        text.push('}');
        text
    }
}

/// Appends `value` as a JSON string.
fn push_string(text: &mut String, value: &str) {
    let escaped = serde_json::to_string(value).expect("a string is always JSON");
    text.push_str(&escaped);
}

/// A reply's `result`, as the browser wrote it.
#[derive(Clone)]
pub struct Answer {
    text: Utf8Bytes,
    result: Range<usize>,
}

impl Answer {
    /// The JSON text of the result object.
    pub fn result(&self) -> &str {
        &self.text.as_str()[self.result.clone()]
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({} bytes)", self.result.len())
    }
}

/// What a frame turned out to be.
#[derive(Debug)]
pub(super) enum Message {
    /// The browser's answer to a command.
    Reply(CallId, Result<Answer, Refusal>),
    /// Something happened.
    Event { method: String, session: Option<SessionId>, params: Box<str> },
}

/// Reads the envelope; `None` for text that is no CDP message.
pub(super) fn read(text: Utf8Bytes) -> Option<Message> {
    match serde_json::from_str::<Envelope<'_>>(text.as_str()) {
        Ok(envelope) => envelope.message(&text),
        // A lone surrogate in the envelope itself; inside of `result` and `params` it stays text and passes.
        Err(_) => {
            let mended = Utf8Bytes::from(mend_surrogates(text.as_str())?);
            serde_json::from_str::<Envelope<'_>>(mended.as_str()).ok()?.message(&mended)
        }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "sessionId")]
    session: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Envelope<'_> {
    fn message(self, text: &Utf8Bytes) -> Option<Message> {
        match (self.id, self.method) {
            (Some(id), _) => {
                let reply = match self.error {
                    Some(error) => Err(refusal(error.get())),
                    None => Ok(answer(text, self.result)),
                };
                Some(Message::Reply(CallId(id), reply))
            }
            (None, Some(method)) => Some(Message::Event {
                method: method.into_owned(),
                session: self.session.as_deref().map(SessionId::from),
                params: self.params.map_or("{}", RawValue::get).into(),
            }),
            (None, None) => None,
        }
    }
}

/// Keeps the whole frame and where its result lies: a large result is not copied.
fn answer(text: &Utf8Bytes, result: Option<&RawValue>) -> Answer {
    match result {
        Some(result) => {
            let start = result.get().as_ptr() as usize - text.as_str().as_ptr() as usize;
            Answer { text: text.clone(), result: start..start + result.get().len() }
        }
        None => Answer { text: Utf8Bytes::from_static("{}"), result: 0..2 },
    }
}

/// Reads CDP's `error` object, as much of it as makes sense.
fn refusal(text: &str) -> Refusal {
    let mended = mend_surrogates(text);
    let text = mended.as_deref().unwrap_or(text);
    let error: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    Refusal {
        code: error["code"].as_i64().unwrap_or(0),
        message: error["message"].as_str().unwrap_or("the browser gave no reason").to_owned(),
        data: match &error["data"] {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        },
    }
}

/// Replaces each `\uD8xx` escape that has no partner by `\uFFFD`; `None` when there is nothing to mend.
pub(crate) fn mend_surrogates(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut mended: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|&byte| byte == b'\\') {
        at += found;
        let lone = match escape(bytes, at) {
            Some(0xD800..=0xDBFF) if matches!(escape(bytes, at + 6), Some(0xDC00..=0xDFFF)) => {
                at += 12;
                continue;
            }
            Some(0xD800..=0xDFFF) => true,
            _ => false,
        };
        if lone {
            let out = mended.get_or_insert_with(String::new);
            out.push_str(&text[copied..at]);
            out.push_str("\\uFFFD");
            at += 6;
            copied = at;
        } else {
            // The escaped character is part of the escape: `\\ud800` is a backslash and five letters.
            at = (at + 2).min(bytes.len());
        }
    }
    mended.map(|mut out| {
        out.push_str(&text[copied..]);
        out
    })
}

/// The code unit of a `\uXXXX` escape at `at`.
fn escape(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Option<Message> {
        read(Utf8Bytes::from(text.to_owned()))
    }

    #[test]
    fn a_command_carries_its_session_only_when_it_has_one() {
        let session = SessionId::from("S");
        let call = Call { method: "Page.enable", params: "{}", session: Some(&session) };

        assert_eq!(call.frame(CallId(7)), r#"{"id":7,"method":"Page.enable","params":{},"sessionId":"S"}"#);
        assert_eq!(Call::browser("A.b", "{}").frame(CallId(1)), r#"{"id":1,"method":"A.b","params":{}}"#);
    }

    #[test]
    fn a_reply_keeps_its_result_as_the_browser_wrote_it() {
        let Some(Message::Reply(CallId(3), Ok(answer))) = message(r#" {"id":3, "result": {"a" : 1.0}} "#) else {
            panic!("not a reply");
        };

        assert_eq!(answer.result(), r#"{"a" : 1.0}"#);
    }

    #[test]
    fn a_lone_surrogate_never_loses_a_reply() {
        for (text, result) in [
            (r#"{"id":1,"result":{"v":"\ud83c"}}"#, r#"{"v":"\ud83c"}"#),
            (r#"{"id":1,"sessionId":"\ud83c","result":{"v":1}}"#, r#"{"v":1}"#),
            (r#"{"\ud83c":1,"id":1,"result":{"v":1}}"#, r#"{"v":1}"#),
        ] {
            let Some(Message::Reply(_, Ok(answer))) = message(text) else { panic!("lost: {text}") };
            assert_eq!(answer.result(), result);
        }
    }

    #[test]
    fn only_surrogates_without_a_partner_are_mended() {
        assert_eq!(mend_surrogates(r#""\ud83c\udf00 \\ud800 \n""#), None);
        assert_eq!(mend_surrogates(r#""\ud83c""#).as_deref(), Some(r#""\uFFFD""#));
        assert_eq!(
            mend_surrogates(r#""\udc00x\ud83c\ud83c\udf00""#).as_deref(),
            Some(r#""\uFFFDx\uFFFD\ud83c\udf00""#)
        );
    }

    #[test]
    fn garbage_is_no_message() {
        for text in ["", "[]", "{}", "nonsense", r#"{"id":"x"}"#, r#"{"result":{}}"#, "\\"] {
            assert!(message(text).is_none(), "{text}");
        }
    }
}
