//! A daemon that does as it is told, and a ledger of what it was asked.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use ghost_browser::client::Door;
use ghost_browser::config::Identity;
use ghost_browser::places::Places;
use ghost_browser::wire::{BUILD, Done, PROTOCOL, Reply, Request, Status, StatusState, read_frame, write_frame};
use ghost_browser::workspace::{Session, SessionFiles};

/// A workspace and a state folder of their own, gone with the test.
pub struct Sandbox {
    top: PathBuf,
}

impl Sandbox {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gb-client-{}-{number}", std::process::id());
        let top = fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
        for folder in [&top, &top.join("state"), &top.join("work")] {
            fs::DirBuilder::new().mode(0o700).create(folder).unwrap();
        }
        Self { top }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    pub fn door(&self) -> Door {
        self.door_of("default")
    }

    pub fn door_of(&self, name: &str) -> Door {
        let identity = Identity {
            name: name.to_owned(),
            gateway: "local".to_owned(),
            gateway_name: "local".to_owned(),
            runtime_dir: None,
        };
        Door { session: Session::of(&identity, &self.path("work")), places: Places::new(Some(&self.path("state"))) }
    }

    pub fn files(&self) -> SessionFiles {
        self.door().session.files(&self.path("state"))
    }

    pub fn state_files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("state")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.top).unwrap();
    }
}

/// What the fake does with one connection, once `Hello` is exchanged.
pub type Visit = Box<dyn FnOnce(&mut Visitor) + Send>;

/// One connection, seen from the daemon.
pub struct Visitor {
    stream: UnixStream,
    ledger: Sender<Request>,
}

impl Visitor {
    /// The next request; `None` when the client is gone.
    pub fn read(&mut self) -> Option<Request> {
        let request: Request = read_frame(&mut self.stream).ok()??;
        self.ledger.send(request.clone()).unwrap();
        Some(request)
    }

    pub fn say(&mut self, reply: &Reply) {
        // A client that is gone is what some tests are about.
        let _ = write_frame(&mut self.stream, reply);
    }
}

pub struct FakeDaemon {
    socket: PathBuf,
    ended: Arc<AtomicBool>,
    ledger: Receiver<Request>,
    thread: Option<JoinHandle<()>>,
}

impl FakeDaemon {
    /// Listens at `socket` as the build `build`, serves one visit after the other, and is gone after the last.
    pub fn listen(socket: &Path, build: &'static str, visits: Vec<Visit>) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (told, ledger) = mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let over = ended.clone();
        let thread = std::thread::spawn(move || {
            for visit in visits {
                let (stream, _) = listener.accept().unwrap();
                if over.load(Ordering::SeqCst) {
                    return;
                }
                serve(stream, build, told.clone(), visit);
            }
        });
        Self { socket: socket.to_owned(), ended, ledger, thread: Some(thread) }
    }

    /// Everything that was asked but for `Hello`, once no more can be.
    pub fn ledger(mut self) -> Vec<Request> {
        self.end();
        self.ledger.try_iter().collect()
    }

    /// Waits for the next request.
    pub fn next(&self) -> Request {
        self.ledger.recv().unwrap()
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.ended.store(true, Ordering::SeqCst);
            // Wakes `accept`, where a visit was expected that did not come.
            let _ = UnixStream::connect(&self.socket);
            thread.join().unwrap();
        }
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

fn serve(mut stream: UnixStream, build: &'static str, ledger: Sender<Request>, visit: Visit) {
    if let Ok(Some(Request::Hello { .. })) = read_frame(&mut stream) {
        let mut visitor = Visitor { stream, ledger };
        visitor.say(&Reply::Hello { protocol: PROTOCOL, build: build.to_owned(), pid: 7 });
        visit(&mut visitor);
    }
}

/// A visit by a client of this build.
pub fn ours(socket: &Path, visits: Vec<Visit>) -> FakeDaemon {
    FakeDaemon::listen(socket, BUILD, visits)
}

/// Takes the request and ends the connection.
pub fn hang_up() -> Visit {
    Box::new(|visitor| {
        visitor.read();
    })
}

/// Takes the request and answers with `replies`.
pub fn answer(replies: Vec<Reply>) -> Visit {
    Box::new(move |visitor| {
        visitor.read();
        replies.iter().for_each(|reply| visitor.say(reply));
    })
}

/// A script that succeeds.
pub fn done() -> Reply {
    Reply::Done(Box::default())
}

pub fn done_with(done: Done) -> Reply {
    Reply::Done(Box::new(done))
}

pub fn status(state: StatusState, name: &str, workspace: &Path) -> Reply {
    Reply::Status(Box::new(Status {
        state,
        gateway: "local".to_owned(),
        pid: Some(7),
        keeper_pid: None,
        since_s: 0.0,
        idle_remaining_s: None,
        scripts: 0,
        calls: 0,
        events_buffered: 0,
        events_dropped: 0,
        workspace: workspace.display().to_string(),
        name: name.to_owned(),
        version: BUILD.to_owned(),
        debts: vec![],
    }))
}
