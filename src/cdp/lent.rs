//! Pages that are opened for a piece of work and closed after it, however it ends.
//!
//! A page whose opening was asked for is owed a close, so its answer is waited for also when the work is cancelled
//! meanwhile; and a page counts as closed when the browser lists it no more.

use std::time::{Duration, Instant};

use serde::Deserialize;

use super::caller::{Caller, read};
use super::error::CallError;
use super::frame::Call;
use crate::ids::TargetId;

/// How long the answer of an opening is waited for beyond a cancel.
const BEYOND_CANCEL: Duration = Duration::from_secs(2);

/// When to look at the list again where no event told the end of a page: a script may have detached its session.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// In a window of its own a page is visible: in a tab behind another it would get no frames and slow timers.
const BLANK: &str = r#"{"url":"about:blank","newWindow":true}"#;

impl Caller {
    /// Opens `count` blank pages at once, each visible. Outcomes are told also when the caller was cancelled, because
    /// nobody would close a page that nobody knows of.
    pub fn open(&self, count: usize, deadline: Instant) -> Vec<Result<TargetId, CallError>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Created {
            target_id: String,
        }
        let method = "Target.createTarget";
        let sent = self.send_all(&vec![Call { method, params: BLANK, session: None }; count]);
        let outcomes = sent.into_iter().map(|sent| {
            let answer = self.late_outcome(sent?, deadline, BEYOND_CANCEL)?;
            read(method, &answer).map(|created: Created| created.target_id.as_str().into())
        });
        outcomes.collect()
    }

    /// Closes pages, also those that do not answer, and waits until they are gone. Returns those that are not.
    pub fn close(&self, targets: &[TargetId], deadline: Instant) -> Vec<TargetId> {
        let ends = self.subscribe("Target.detachedFromTarget", None);
        for target in targets {
            let params = serde_json::json!({ "targetId": target.as_str() }).to_string();
            // Whether it worked is seen in the list; a page that is gone refuses it.
            let _ = self.tell(&Call { method: "Target.closeTarget", params: &params, session: None });
        }
        loop {
            let open = match self.pages(deadline) {
                Ok(open) => open,
                // A browser that is gone has no pages.
                Err(CallError::Closed { .. }) => return Vec::new(),
                Err(_) => return targets.to_vec(),
            };
            let is_open = |target: &&TargetId| open.iter().any(|page| page.target == **target);
            let left: Vec<_> = targets.iter().filter(is_open).cloned().collect();
            if left.is_empty() || Instant::now() >= deadline {
                return left;
            }
            // What came does not matter: the list is looked at.
            let _ = self.next(&ends, deadline.min(Instant::now() + LOOK_AGAIN));
        }
    }
}
