//! `--json`: everything about a run in one object.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::client::Outcome;
use crate::wire::{Aftermath, Fault};
use crate::workspace::Session;

/// The most output that is kept for the object.
const OUTPUT_LIMIT: usize = 1 << 20;

/// The output of a script, kept until it has ended.
#[derive(Debug, Default)]
pub(super) struct Kept {
    text: String,
    is_cut: bool,
}

impl Kept {
    /// Keeps what there is room for.
    pub(super) fn push(&mut self, text: &str) {
        if self.is_cut {
            return;
        }
        let mut room = text.len().min(OUTPUT_LIMIT - self.text.len());
        self.is_cut = room < text.len();
        while !text.is_char_boundary(room) {
            room -= 1;
        }
        self.text.push_str(&text[..room]);
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    ok: bool,
    value: Option<Box<RawValue>>,
    output: &'a str,
    error: Option<&'a Fault>,
    warnings: Vec<String>,
    aftermath: Option<&'a Aftermath>,
    session: Option<Whose>,
}

#[derive(Serialize)]
struct Whose {
    workspace: String,
    name: String,
}

/// The object of a run, as one line.
pub(super) fn line(result: &Result<Outcome, Fault>, kept: &Kept, session: Option<&Session>) -> String {
    let error = error(result);
    let envelope = Envelope {
        ok: error.is_none(),
        value: result.as_ref().ok().and_then(value),
        output: &kept.text,
        error,
        warnings: warnings(result, kept),
        aftermath: result.as_ref().ok().and_then(|outcome| outcome.done.aftermath.as_deref()),
        session: session
            .map(|session| Whose { workspace: session.root.display().to_string(), name: session.name.clone() }),
    };
    let mut line = serde_json::to_string(&envelope).expect("an envelope is always JSON");
    line.push('\n');
    line
}

/// What the script or, when it succeeded, the release failed with.
fn error(result: &Result<Outcome, Fault>) -> Option<&Fault> {
    match result {
        Ok(outcome) => outcome.done.fault.as_ref().or_else(|| unconfirmed(outcome).first()),
        Err(fault) => Some(fault),
    }
}

fn unconfirmed(outcome: &Outcome) -> &[Fault] {
    outcome.stopped.as_ref().map_or(&[], |stopped| &stopped.unconfirmed)
}

/// The value; one that is no JSON, like NaN, as a string.
fn value(outcome: &Outcome) -> Option<Box<RawValue>> {
    let text = outcome.done.value.clone()?;
    let raw = RawValue::from_string(text.clone()).or_else(|_| serde_json::value::to_raw_value(&text));
    raw.ok()
}

fn warnings(result: &Result<Outcome, Fault>, kept: &Kept) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Ok(outcome) = result {
        warnings.extend(outcome.done.warnings.iter().cloned());
        if outcome.done.fault.is_some() {
            warnings.extend(unconfirmed(outcome).iter().map(Fault::to_string));
        }
    }
    if result.as_ref().is_ok_and(|outcome| outcome.done.value_is_left_out) {
        warnings.push("the value is too long for `value` and was left out".to_owned());
    }
    if kept.is_cut {
        warnings.push(format!("output was cut at {OUTPUT_LIMIT} bytes"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Done, FaultCode, Stopped};

    fn parsed(result: &Result<Outcome, Fault>, kept: &Kept) -> serde_json::Value {
        serde_json::from_str(&line(result, kept, None)).unwrap()
    }

    fn ended(done: Done) -> Result<Outcome, Fault> {
        Ok(Outcome { done, stopped: None })
    }

    #[test]
    fn a_value_stays_the_json_that_it_is() {
        for (text, expected) in
            [("{\"n\":9007199254740993}", "\"value\":{\"n\":9007199254740993}"), ("NaN", "\"value\":\"NaN\"")]
        {
            let done = Done { value: Some(text.to_owned()), ..Done::default() };

            let line = line(&ended(done), &Kept::default(), None);

            assert!(line.contains(expected), "{line}");
        }
    }

    #[test]
    fn every_field_is_there_whatever_the_outcome() {
        let refused = Err(Fault::new(FaultCode::NoBrowser, "none").hint("stop"));

        let envelope = parsed(&refused, &Kept::default());

        let fields: Vec<_> = envelope.as_object().unwrap().keys().cloned().collect();
        let mut expected = ["ok", "value", "output", "error", "warnings", "aftermath", "session"];
        expected.sort_unstable();
        assert_eq!(fields, expected);
        assert_eq!(envelope["ok"], false);
        assert_eq!(envelope["error"]["code"], "no_browser");
    }

    #[test]
    fn an_unconfirmed_release_is_never_left_out() {
        let owed = Stopped { released: 0, unconfirmed: vec![Fault::new(FaultCode::ReleaseUnconfirmed, "owed")] };
        let mut outcome = Outcome { done: Done::default(), stopped: Some(owed) };
        assert_eq!(error(&Ok(outcome)).map(Fault::to_string).as_deref(), Some("owed"));

        outcome = Outcome {
            done: Done { fault: Some(Fault::new(FaultCode::ScriptError, "thrown")), ..Done::default() },
            stopped: Some(Stopped {
                released: 0,
                unconfirmed: vec![Fault::new(FaultCode::ReleaseUnconfirmed, "owed")],
            }),
        };
        let envelope = parsed(&Ok(outcome), &Kept::default());
        assert_eq!(envelope["error"]["message"], "thrown");
        assert_eq!(envelope["warnings"][0], "owed");
    }

    #[test]
    fn output_is_bounded_and_its_cut_is_told() {
        let mut kept = Kept::default();
        kept.push(&"é".repeat(OUTPUT_LIMIT / 2 - 1));
        kept.push("aé€");
        kept.push("more");

        let envelope = parsed(&ended(Done::default()), &kept);

        assert!(envelope["output"].as_str().unwrap().ends_with('a'));
        assert!(envelope["warnings"][0].as_str().unwrap().starts_with("output was cut"));
    }
}
