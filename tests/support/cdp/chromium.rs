//! The model of a browser: targets, sessions, and the events that Chromium would send. Opens no socket.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Command;
use super::evaluate::{Page, evaluate};

const NOT_FOUND: (i64, &str) = (-32601, "wasn't found");
const NO_SESSION: (i64, &str) = (-32001, "Session with given id not found.");
const NO_TARGET: (i64, &str) = (-32602, "No target with given id found");

/// One browser with one blank page, as Chromium starts.
pub(super) struct Chromium {
    pages: BTreeMap<String, Tab>,
    sessions: BTreeMap<String, Session>,
    next: u32,
    discovering: bool,
}

struct Tab {
    url: String,
    title: String,
}

/// One flat attachment.
struct Session {
    /// `None`: the browser itself.
    target: Option<String>,
    /// Where its events of attaching go.
    parent: Option<String>,
    page_enabled: bool,
    auto_attach: Option<AutoAttach>,
}

#[derive(Clone, Copy)]
struct AutoAttach {
    waits: bool,
}

/// What goes out: events before the reply, the reply, events after it.
type Frames = Vec<String>;

impl Default for Chromium {
    fn default() -> Self {
        let mut chromium = Self { pages: BTreeMap::new(), sessions: BTreeMap::new(), next: 0, discovering: false };
        chromium.open_page("about:blank");
        chromium
    }
}

impl Chromium {
    /// All that the browser sends because of `command`.
    pub(super) fn answer(&mut self, command: &Command) -> Frames {
        let known = command.session.as_ref().is_none_or(|id| self.sessions.contains_key(id));
        if !known {
            return refuse(command, NO_SESSION);
        }
        match command.method.split_once('.').unwrap_or_default() {
            ("Browser", name) => self.browser(command, name),
            ("Target", name) => self.target(command, name),
            ("Page", name) => self.page(command, name),
            ("Runtime", name) => self.runtime(command, name),
            ("Input" | "Network" | "DOM" | "Log" | "Emulation" | "Inspector", _) => reply(command, json!({})),
            _ => refuse(command, NOT_FOUND),
        }
    }

    pub(super) fn sessions(&self) -> Vec<(String, String)> {
        let attached = self.sessions.iter();
        attached.filter_map(|(id, session)| Some((id.clone(), session.target.clone()?))).collect()
    }

    /// A new page, and what is sent about it to everyone who attaches to new pages.
    pub(super) fn open_page(&mut self, url: &str) -> (String, Frames) {
        let target = self.fresh("TARGET");
        let tab = Tab { url: url.to_owned(), title: String::new() };
        self.pages.insert(target.clone(), tab);
        let mut frames = Vec::new();
        if self.discovering {
            frames.push(event(None, "Target.targetCreated", json!({"targetInfo": self.info(&target)})));
        }
        for (parent, auto) in self.auto_attachers() {
            frames.extend(self.attach(&target, parent, auto.waits).1);
        }
        (target, frames)
    }

    pub(super) fn close_page(&mut self, target: &str) -> Frames {
        let (gone, kept) = std::mem::take(&mut self.sessions)
            .into_iter()
            .partition(|(_, session)| session.target.as_deref() == Some(target));
        self.sessions = kept;
        let gone: BTreeMap<String, Session> = gone;
        let mut frames: Frames = gone
            .into_iter()
            .map(|(id, session)| {
                let told = json!({"sessionId": id, "targetId": target});
                event(session.parent.as_deref(), "Target.detachedFromTarget", told)
            })
            .collect();
        self.pages.remove(target);
        if self.discovering {
            frames.push(event(None, "Target.targetDestroyed", json!({"targetId": target})));
        }
        frames
    }

    pub(super) fn crash_page(&mut self, target: &str) -> Frames {
        let of_target = |(id, session): (&String, &Session)| {
            (session.target.as_deref() == Some(target)).then(|| event(Some(id), "Inspector.targetCrashed", json!({})))
        };
        self.sessions.iter().filter_map(of_target).collect()
    }

    fn browser(&mut self, command: &Command, name: &str) -> Frames {
        match name {
            "getVersion" => reply(command, version()),
            "close" | "setDownloadBehavior" => reply(command, json!({})),
            _ => refuse(command, NOT_FOUND),
        }
    }

    fn target(&mut self, command: &Command, name: &str) -> Frames {
        match name {
            "getTargets" => reply(command, json!({"targetInfos": self.infos()})),
            "getTargetInfo" => self.with_target(command, |model, target| json!({"targetInfo": model.info(target)})),
            "activateTarget" => self.with_target(command, |_, _| json!({})),
            "createTarget" => self.create(command),
            "closeTarget" => self.close_target(command),
            "attachToTarget" => self.attach_to_target(command),
            "attachToBrowserTarget" => {
                let session = self.add_session(None, command.session.clone());
                reply(command, json!({"sessionId": session}))
            }
            "detachFromTarget" => self.detach(command),
            "setAutoAttach" => self.set_auto_attach(command),
            "setDiscoverTargets" => self.set_discover(command),
            _ => refuse(command, NOT_FOUND),
        }
    }

    fn page(&mut self, command: &Command, name: &str) -> Frames {
        let Some(target) = self.target_of(command) else {
            return refuse(command, NOT_FOUND);
        };
        match name {
            "enable" => {
                self.session(command).page_enabled = true;
                reply(command, json!({}))
            }
            "navigate" => self.navigate(command, &target),
            "getFrameTree" => {
                let frame = json!({"id": target, "loaderId": "LOADER", "url": self.pages[&target].url});
                reply(command, json!({"frameTree": {"frame": frame}}))
            }
            "getLayoutMetrics" => reply(command, metrics()),
            "captureScreenshot" => reply(command, json!({"data": PIXEL})),
            _ => reply(command, json!({})),
        }
    }

    fn runtime(&mut self, command: &Command, name: &str) -> Frames {
        let Some(target) = self.target_of(command) else {
            return refuse(command, NOT_FOUND);
        };
        let tab = &self.pages[&target];
        let page = Page { url: &tab.url, title: &tab.title };
        match name {
            "evaluate" => reply(command, evaluate(&command.params, &page)),
            _ => reply(command, json!({})),
        }
    }

    fn create(&mut self, command: &Command) -> Frames {
        let (target, mut frames) = self.open_page(text(command, "url"));
        frames.push(command.reply(json!({"targetId": target})));
        frames
    }

    fn close_target(&mut self, command: &Command) -> Frames {
        let target = text(command, "targetId");
        if !self.pages.contains_key(target) {
            return refuse(command, NO_TARGET);
        }
        let mut frames = reply(command, json!({"success": true}));
        frames.extend(self.close_page(target));
        frames
    }

    fn attach_to_target(&mut self, command: &Command) -> Frames {
        let target = text(command, "targetId");
        if !self.pages.contains_key(target) {
            return refuse(command, NO_TARGET);
        }
        let (session, mut frames) = self.attach(target, command.session.clone(), false);
        frames.push(command.reply(json!({"sessionId": session})));
        frames
    }

    fn detach(&mut self, command: &Command) -> Frames {
        match self.sessions.remove(text(command, "sessionId")) {
            Some(_) => reply(command, json!({})),
            None => refuse(command, NO_SESSION),
        }
    }

    fn set_auto_attach(&mut self, command: &Command) -> Frames {
        let wanted = command.params["autoAttach"] == true;
        let auto = wanted.then(|| AutoAttach { waits: command.params["waitForDebuggerOnStart"] == true });
        // At a page it concerns frames and workers, of which there are none here.
        let Some(session) = command.session.clone() else {
            return reply(command, json!({}));
        };
        self.session(command).auto_attach = auto;
        let mut frames = Vec::new();
        if wanted && self.sessions[&session].target.is_none() {
            for target in self.pages.keys().cloned().collect::<Vec<_>>() {
                frames.extend(self.attach(&target, Some(session.clone()), false).1);
            }
        }
        frames.push(command.reply(json!({})));
        frames
    }

    fn set_discover(&mut self, command: &Command) -> Frames {
        self.discovering = command.params["discover"] == true;
        let told = |target: &String| {
            event(command.session.as_deref(), "Target.targetCreated", json!({"targetInfo": self.info(target)}))
        };
        let mut frames: Frames = if self.discovering { self.pages.keys().map(told).collect() } else { Vec::new() };
        frames.push(command.reply(json!({})));
        frames
    }

    fn navigate(&mut self, command: &Command, target: &str) -> Frames {
        let url = text(command, "url").to_owned();
        let tab = self.pages.get_mut(target).expect("a session's page exists");
        tab.title = title(&url);
        tab.url = url;
        let mut frames = reply(command, json!({"frameId": target, "loaderId": "LOADER"}));
        for name in ["Page.domContentEventFired", "Page.loadEventFired"] {
            let watching = self
                .sessions
                .iter()
                .filter(|(_, session)| session.page_enabled && session.target.as_deref() == Some(target));
            frames.extend(watching.map(|(id, _)| event(Some(id), name, json!({"timestamp": 1.5}))));
        }
        frames
    }

    /// A new session on `target`, and the event that tells `parent` of it.
    fn attach(&mut self, target: &str, parent: Option<String>, waits: bool) -> (String, Frames) {
        let session = self.add_session(Some(target.to_owned()), parent.clone());
        let told = json!({"sessionId": session, "targetInfo": self.info(target), "waitingForDebugger": waits});
        (session, vec![event(parent.as_deref(), "Target.attachedToTarget", told)])
    }

    fn add_session(&mut self, target: Option<String>, parent: Option<String>) -> String {
        let id = self.fresh("SESSION");
        let session = Session { target, parent, page_enabled: false, auto_attach: None };
        self.sessions.insert(id.clone(), session);
        id
    }

    fn auto_attachers(&self) -> Vec<(Option<String>, AutoAttach)> {
        let browsers = self.sessions.iter().filter(|(_, session)| session.target.is_none());
        browsers.filter_map(|(id, session)| Some((Some(id.clone()), session.auto_attach?))).collect()
    }

    fn session(&mut self, command: &Command) -> &mut Session {
        let id = command.session.as_ref().expect("only called with a session");
        self.sessions.get_mut(id).expect("`answer` has looked")
    }

    fn target_of(&self, command: &Command) -> Option<String> {
        self.sessions.get(command.session.as_ref()?)?.target.clone()
    }

    fn with_target(&self, command: &Command, answer: impl Fn(&Self, &str) -> Value) -> Frames {
        let own = self.target_of(command);
        let target = command.params["targetId"].as_str().or(own.as_deref()).unwrap_or_default();
        if !self.pages.contains_key(target) {
            return refuse(command, NO_TARGET);
        }
        reply(command, answer(self, target))
    }

    fn infos(&self) -> Vec<Value> {
        self.pages.keys().map(|target| self.info(target)).collect()
    }

    fn info(&self, target: &str) -> Value {
        let tab = &self.pages[target];
        let attached = self.sessions.values().any(|session| session.target.as_deref() == Some(target));
        json!({
            "targetId": target, "type": "page", "title": tab.title, "url": tab.url, "attached": attached,
            "canAccessOpener": false, "browserContextId": "CONTEXT",
        })
    }

    fn fresh(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}-{}", self.next)
    }
}

/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn version() -> Value {
    json!({
        "protocolVersion": "1.3", "product": "HeadlessChrome/156.0.0.0", "revision": "@0",
        "userAgent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0", "jsVersion": "15.6",
    })
}

fn metrics() -> Value {
    let viewport = json!({"offsetX": 0, "offsetY": 0, "pageX": 0, "pageY": 0, "clientWidth": 800, "clientHeight": 600, "scale": 1, "zoom": 1});
    let layout = json!({"pageX": 0, "pageY": 0, "clientWidth": 800, "clientHeight": 600});
    let content = json!({"x": 0, "y": 0, "width": 800, "height": 600});
    json!({
        "layoutViewport": layout, "visualViewport": viewport, "contentSize": content,
        "cssLayoutViewport": layout, "cssVisualViewport": viewport, "cssContentSize": content,
    })
}

/// The title that a `data:` page declares, else nothing.
fn title(url: &str) -> String {
    let after = url.split_once("<title>").map(|(_, rest)| rest).unwrap_or_default();
    after.split_once("</title>").map(|(title, _)| title.to_owned()).unwrap_or_default()
}

fn text<'a>(command: &'a Command, name: &str) -> &'a str {
    command.params[name].as_str().unwrap_or_default()
}

fn reply(command: &Command, result: Value) -> Frames {
    vec![command.reply(result)]
}

fn refuse(command: &Command, (code, message): (i64, &str)) -> Frames {
    let message = if code == NOT_FOUND.0 { format!("'{}' {message}", command.method) } else { message.to_owned() };
    vec![command.refusal(code, &message)]
}

fn event(session: Option<&str>, method: &str, params: Value) -> String {
    let mut frame = json!({"method": method, "params": params});
    if let Some(session) = session {
        frame["sessionId"] = json!(session);
    }
    frame.to_string()
}
