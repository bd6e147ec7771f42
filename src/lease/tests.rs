//! Lease, driver and note together, against a gateway of a few lines and a scripted server.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::gateway::hosted::tests::server::{Deed, Server, say};
use crate::gateway::hosted::{self, BaseUrl, Hosted};
use crate::gateway::{Allocation, Ask, Capability, Gateway};
use crate::proxy::Proxies;
use crate::wire::{Fault, FaultCode};

const BROWSER: &str = "X-Ghost-Session: id\r\n";
const BODY: &str = r#"{"webSocketDebuggerUrl":"ws://127.0.0.1:9/x"}"#;

/// What a supervisor does with a lease, without connections and keeper.
struct Bench {
    folder: tempfile::TempDir,
    driver: Driver,
    events: Receiver<Event>,
    lease: Lease,
}

impl Bench {
    fn new(gateway: impl Gateway + 'static) -> Self {
        Self::with_keeper(gateway, Arc::new(|_, _| Ok(())))
    }

    fn with_keeper(gateway: impl Gateway + 'static, entrust: Entrust) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (sender, events) = mpsc::channel();
        let place = NotePlace {
            folder: folder.path().to_owned(),
            key: "key".into(),
            gateway: gateway.name().into(),
            workspace: "/w".into(),
            name: "n".into(),
        };
        let sink = Arc::new(move |event| sender.send(event).unwrap());
        Self {
            driver: Driver::new(Arc::new(gateway), place, entrust, sink, Arc::new(drop)),
            folder,
            events,
            lease: Lease::Vacant,
        }
    }

    fn hosted(server: &Server) -> Self {
        let base = format!("http://{}", server.authority());
        let config = hosted::Config {
            base: BaseUrl::parse(&base, "GHOST_GATEWAY_URL").unwrap(),
            token: None,
            country: None,
            proxies: Proxies::default(),
        };
        Self::new(Hosted::new(config).unwrap())
    }

    /// Lets `event` happen; returns what was told.
    fn tell(&mut self, event: Event) -> Vec<News> {
        let lease = std::mem::replace(&mut self.lease, Lease::Vacant);
        let (lease, actions) = lease.step(event, Instant::now());
        self.lease = lease;
        let mut news = Vec::new();
        for action in actions {
            match action {
                Action::Ask => self.driver.ask(Instant::now() + Duration::from_secs(20)),
                Action::Abandon => self.driver.abandon(),
                Action::Release { capability, attempt, closed } => self.driver.release(capability, attempt, closed),
                Action::Settle(_) => self.driver.settle().unwrap(),
                Action::Report(told) => news.push(told),
                _ => {}
            }
        }
        news
    }

    /// Waits for the driver's next event and lets it happen.
    fn wait(&mut self) -> Vec<News> {
        let event = self.events.recv_timeout(Duration::from_secs(20)).unwrap();
        self.tell(event)
    }

    fn notes(&self) -> usize {
        find_all(self.folder.path()).unwrap().len()
    }
}

/// A gateway that is a function.
struct Fake<F>(F, Option<Capability>);

impl<F: Fn(&Ask) -> Allocation + Send + Sync> Gateway for Fake<F> {
    fn name(&self) -> &str {
        "fake"
    }

    fn prepare(&self) -> Result<Option<Capability>, Fault> {
        Ok(self.1.clone())
    }

    fn allocate(&self, ask: &Ask) -> Allocation {
        (self.0)(ask)
    }
}

fn refused() -> Allocation {
    Allocation::Refused(Fault::new(FaultCode::NoBrowser, "no"))
}

fn nobody() -> Capability {
    Capability::Hosted(hosted::Release::of_nobody("id"))
}

fn answer(bench: &Bench) -> Allocation {
    match bench.events.recv_timeout(Duration::from_secs(20)).unwrap() {
        Event::Answered(answer) => answer,
        other => panic!("no answer: {other:?}"),
    }
}

#[test]
fn a_lost_browser_is_released_at_its_own_server_and_owed_until_that_answers() {
    // Nothing listens where the WebSocket is said to be.
    let server = Server::start([say(200, BROWSER, BODY)]);
    let mut bench = Bench::hosted(&server);
    bench.tell(Event::Wanted);
    bench.wait();
    let was_held = matches!(bench.lease, Lease::Held { .. });

    bench.tell(Event::ConnectionLost);
    let told = bench.wait();

    let refused = "gateway release failed: connection refused";
    assert!(was_held);
    assert!(matches!(&told[..], [News::Unpaid(fault)] if fault.message == refused));
    assert_eq!(bench.notes(), 1);
    assert_eq!(server.ledger(), ["GET /json/version"]);
}

#[test]
fn a_failed_release_is_kept_until_stop_brings_the_confirmation() {
    let server = Server::start([say(500, BROWSER, ""), say(500, "", ""), say(204, "", "")]);
    let mut bench = Bench::hosted(&server);
    bench.tell(Event::Wanted);
    bench.wait();

    let first = bench.wait();
    let unpaid_notes = bench.notes();
    bench.tell(Event::Stop);
    let second = bench.wait();

    assert!(matches!(&first[..], [News::Unpaid(fault)] if fault.message == "gateway allocation failed: HTTP 500"));
    assert_eq!(unpaid_notes, 1);
    assert_eq!(second, [News::Released]);
    assert_eq!(bench.notes(), 0);
    assert_eq!(server.ledger(), ["GET /json/version", "DELETE /v1/sessions/id", "DELETE /v1/sessions/id"]);
}

#[test]
fn an_abandoned_browser_is_released_unseen() {
    let (arrived, arrival) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let late = Deed::Do(Box::new(move |stream| {
        arrived.send(()).unwrap();
        gone.recv().unwrap();
        let text = format!("HTTP/1.1 500 X\r\n{BROWSER}Content-Length: 0\r\n\r\n");
        std::io::Write::write_all(stream, text.as_bytes()).unwrap();
    }));
    let server = Server::start([late, say(204, "", "")]);
    let mut bench = Bench::hosted(&server);
    bench.tell(Event::Wanted);
    arrival.recv().unwrap();

    bench.tell(Event::Unwanted);
    go.send(()).unwrap();
    bench.wait();
    bench.wait();

    assert!(matches!(bench.lease, Lease::Vacant));
    assert_eq!(bench.notes(), 0);
    assert_eq!(server.ledger(), ["GET /json/version", "DELETE /v1/sessions/id"]);
}

#[test]
fn what_nothing_can_confirm_is_told_and_told_once_more_by_stop() {
    let server = Server::start([Deed::End]);
    let mut bench = Bench::hosted(&server);
    bench.tell(Event::Wanted);

    let told = bench.wait();
    let marked = bench.notes();
    let again = bench.tell(Event::Stop);

    assert!(matches!(&told[..], [News::Owed(fault)] if fault.code == FaultCode::ReleaseUnconfirmed));
    assert_eq!((told, marked, bench.notes()), (again, 1, 0));
}

#[test]
fn without_a_note_nothing_is_asked_for() {
    let asked = Arc::new(AtomicBool::new(false));
    let seen = asked.clone();
    let bench = Bench::new(Fake(
        move |_: &Ask| {
            seen.store(true, Ordering::SeqCst);
            refused()
        },
        None,
    ));
    std::fs::remove_dir(bench.folder.path()).unwrap();

    bench.driver.ask(Instant::now() + Duration::from_secs(20));

    let Allocation::Refused(fault) = answer(&bench) else {
        panic!("not refused");
    };
    assert_eq!(fault.code, FaultCode::NoBrowser);
    assert!(!asked.load(Ordering::SeqCst));
}

#[test]
fn note_and_keeper_are_there_before_the_request_leaves() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let (asked, kept) = (order.clone(), order.clone());
    let folder = Arc::new(Mutex::new(None::<std::path::PathBuf>));
    let place = folder.clone();
    let is_locked = |folder: &Path| find_all(folder).unwrap()[0].is_locked();
    let gateway = Fake(
        move |ask: &Ask| {
            let folder = place.lock().unwrap().clone().unwrap();
            let prepared = ask.prepared.is_some();
            asked.lock().unwrap().push(("asked", prepared && is_locked(&folder)));
            refused()
        },
        Some(nobody()),
    );
    let entrust: Entrust = Arc::new(move |_, _| {
        kept.lock().unwrap().push(("entrusted", true));
        Ok(())
    });
    let bench = Bench::with_keeper(gateway, entrust);
    *folder.lock().unwrap() = Some(bench.folder.path().to_owned());

    bench.driver.ask(Instant::now() + Duration::from_secs(20));

    assert!(matches!(answer(&bench), Allocation::Refused(_)));
    assert_eq!(*order.lock().unwrap(), [("entrusted", true), ("asked", true)]);
}

#[test]
fn a_keeper_that_cannot_be_had_is_a_refusal() {
    let gateway = Fake(|_: &Ask| panic!("asked without a keeper"), Some(nobody()));
    let entrust: Entrust = Arc::new(|_, _| Err(Fault::new(FaultCode::NoBrowser, "no keeper")));
    let bench = Bench::with_keeper(gateway, entrust);

    bench.driver.ask(Instant::now() + Duration::from_secs(20));

    assert!(matches!(answer(&bench), Allocation::Refused(fault) if fault.message == "no keeper"));
}

#[test]
fn a_panic_is_an_answer_and_never_hides_a_browser() {
    let before = |_: &Ask| -> Allocation { panic!("before the request") };
    let after = |ask: &Ask| -> Allocation {
        ask.left.raise();
        panic!("after the request")
    };
    let ask = |bench: &Bench| {
        bench.driver.ask(Instant::now() + Duration::from_secs(20));
        answer(bench)
    };

    let nothing_left = ask(&Bench::new(Fake(before, None)));
    let something_left = ask(&Bench::new(Fake(after, None)));
    let prepared = ask(&Bench::new(Fake(after, Some(nobody()))));

    assert!(matches!(nothing_left, Allocation::Refused(_)));
    assert!(matches!(something_left, Allocation::Lost(_)));
    assert!(matches!(prepared, Allocation::Unusable(..)));
}

#[test]
fn a_caller_that_stops_waiting_owes_only_what_has_left() {
    let code = |raise: bool| {
        let bench = Bench::new(Fake(
            move |ask: &Ask| {
                if raise {
                    ask.left.raise();
                }
                refused()
            },
            None,
        ));
        bench.driver.ask(Instant::now() + Duration::from_secs(20));
        answer(&bench);
        match bench.driver.expired() {
            Event::Expired(fault) => fault.code.exit_code(),
            other => panic!("not expired: {other:?}"),
        }
    };

    assert_eq!(code(true), 5);
    assert_eq!(code(false), 3);
}

#[test]
fn a_copy_of_the_note_keeps_it_locked_for_the_keeper() {
    let folder = tempfile::tempdir().unwrap();
    let place = NotePlace {
        folder: folder.path().to_owned(),
        key: "k".into(),
        gateway: "g".into(),
        workspace: "/w".into(),
        name: "n".into(),
    };
    let note = Note::create(&place).unwrap();

    let copy = note.share().unwrap();
    drop(note);

    let is_locked = || find_all(folder.path()).unwrap()[0].is_locked();
    assert!(is_locked());
    drop(copy);
    assert!(!is_locked());
}
