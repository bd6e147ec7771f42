//! The process that holds a browser, and the one that holds its debt.
//!
//! [`main`] is the daemon's life: it makes itself unreadable, takes its start message from standard input, takes the session's
//! lock, binds the socket and says so; then the supervisor runs until there is nothing left to hold. `listener` and `visitor` are
//! the clients' side, `desk` is how they reach the `supervisor`, and `keeper` is the second process.
//!
//! Nothing here decides what a debt is (`crate::lease`) or what a script may do (`crate::script`). Read `supervisor` next.

mod connector;
mod desk;
mod heap;
pub mod keeper;
mod listener;
mod lock;
mod log;
mod post;
mod process;
mod supervisor;
mod visitor;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use self::connector::Connector;
use self::desk::{Desk, News};
use self::lock::{Lock, Name};
use self::supervisor::{Means, Supervisor};
use self::visitor::{House, Visits};
use crate::config::GatewayChoice;
use crate::gateway::Gateway;
use crate::gateway::hosted::{BaseUrl, Config, Hosted};
use crate::launch::Launch;
use crate::lease::{self, NotePlace};
use crate::local::{self, Local};
use crate::proxy::Proxies;
use crate::redact::Redactor;
use crate::script::Host;
use crate::wire::{Fault, FaultCode, Ready, read_frame, write_frame};

/// The hidden argument that makes this program a daemon.
pub const ARGUMENT: &str = "--daemon";

/// How long a daemon that is ending may still hold the lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// The daemon process. Its standard input brings the start message, its standard output takes one word: ready, or why not.
pub fn main() -> ExitCode {
    heap::keep_little();
    if process::prepare().is_err() {
        return ExitCode::FAILURE;
    }
    let launch = match read_frame::<Launch>(&mut io::stdin().lock()) {
        Ok(Some(launch)) => launch,
        Ok(None) | Err(_) => return ExitCode::FAILURE,
    };
    match Daemon::start(launch) {
        Ok(daemon) => {
            say(&Ready::Listening);
            process::close_standard();
            daemon.run();
            ExitCode::SUCCESS
        }
        Err(fault) => {
            say(&Ready::Refused(fault));
            ExitCode::FAILURE
        }
    }
}

/// Tells the starter, if it is still there.
fn say(word: &Ready) {
    let mut stdout = io::stdout().lock();
    let _ = write_frame(&mut stdout, word).and_then(|()| stdout.flush());
}

/// A daemon that listens.
struct Daemon {
    supervisor: Supervisor,
    visits: Visits,
    lock: Lock,
    socket: Name,
    launch: Launch,
}

impl Daemon {
    fn start(launch: Launch) -> Result<Self, Fault> {
        let lock = take_lock(&launch.files.lock)?;
        lease::clear_drafts(&launch.files.folder, launch.session.key.as_str());
        log::start(&launch.files.log, launch.settings.log);
        let redactor = Redactor::new();
        let proxies = proxies(&launch);
        let gateway = gateway(&launch, &proxies, &redactor)?;
        let (listener, socket) = listener::bind(&launch.files)?;
        let (desk, news) = Desk::open();
        process::tell_signals(desk.sender(), || News::Signal).map_err(|error| no_thread(&error))?;
        let host = Arc::new(Host::new(launch.session.root.to_path_buf()));
        let visits = Visits::default();
        let house = House {
            desk: desk.clone(),
            host: host.clone(),
            redactor: redactor.clone(),
            visits: visits.clone(),
            credential: launch.settings.credential(&launch.session.key),
            settings: launch.settings.digest(),
            patience: launch.settings.idle,
        };
        listener::serve(listener, Arc::new(house)).map_err(|error| no_thread(&error))?;
        let means = Means {
            notes: NotePlace {
                folder: launch.files.folder.to_path_buf(),
                key: launch.session.key.as_str().to_owned(),
                gateway: gateway.name().to_owned(),
                workspace: launch.session.root.display().to_string(),
                name: launch.session.name.clone(),
            },
            gateway,
            connector: Connector { proxies, within: launch.settings.ws_timeout },
            redactor,
            host,
            desk,
            idle: launch.settings.idle,
            allocation_timeout: launch.settings.allocation_timeout,
            workspace: launch.session.root.to_path_buf(),
            name: launch.session.name.clone(),
        };
        Ok(Self { supervisor: Supervisor::new(means, news), visits, lock, socket, launch })
    }

    /// Serves until there is nothing left to hold, then takes the socket away before the lock is anybody else's, and before
    /// those who came too late are sent on: they would come back.
    fn run(mut self) {
        let is_findable = || self.lock.is_findable() && self.socket.is_still_there();
        self.supervisor.run(is_findable);
        // A swept folder may have a newer daemon's socket by now.
        if is_findable() {
            let _ = fs::remove_file(&self.launch.files.socket);
        }
        drop(self.supervisor);
        self.visits.wait_for_last_words();
    }
}

fn take_lock(path: &Path) -> Result<Lock, Fault> {
    let cannot = |why: &str| {
        Fault::new(FaultCode::NoBrowser, format!("the daemon cannot take its lock {}: {why}", path.display()))
    };
    match Lock::take(path, LOCK_PATIENCE) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(cannot("another daemon holds it")),
        Err(error) => Err(cannot(&error.to_string()).hint("make room on the disk, or set GHOST_BROWSER_RUNTIME_DIR")),
    }
}

fn proxies(launch: &Launch) -> Proxies {
    let variables = &launch.settings.proxy;
    Proxies::from_env(|name| match name {
        "HTTPS_PROXY" => variables.https.as_ref().map(|url| url.expose().to_owned()),
        "ALL_PROXY" => variables.all.as_ref().map(|url| url.expose().to_owned()),
        "NO_PROXY" => variables.no.clone(),
        _ => None,
    })
}

/// Where this session's browsers come from. What must not be seen of the settings is told to the redactor first.
fn gateway(launch: &Launch, proxies: &Proxies, redactor: &Redactor) -> Result<Arc<dyn Gateway>, Fault> {
    let settings = &launch.settings;
    settings.token.iter().for_each(|token| redactor.learn(token));
    match &settings.gateway {
        GatewayChoice::Local => Ok(Arc::new(Local::new(local_settings(launch)))),
        GatewayChoice::Hosted { base, variable, .. } => {
            let variable = variable.as_deref().unwrap_or("GHOST_GATEWAY_URL");
            let config = Config {
                base: BaseUrl::parse(base.expose(), variable)?,
                token: settings.token.clone(),
                country: settings.country.clone(),
                proxies: proxies.clone(),
            };
            config.secrets().iter().for_each(|secret| redactor.learn(secret));
            Ok(Arc::new(Hosted::new(config)?))
        }
    }
}

fn local_settings(launch: &Launch) -> local::Settings {
    let chromium = &launch.settings.chromium;
    local::Settings {
        chromium: chromium.program.as_ref().map(|program| program.as_os_str().to_owned()),
        args: chromium.args.clone(),
        headed: chromium.headed,
        profile: chromium.profile.as_ref().map(|profile| profile.as_os_str().to_owned()),
        state_folder: launch.files.folder.clone(),
        log: launch.files.folder.join(format!("{}.chromium.log", launch.session.key)).into(),
        environment: launch.settings.environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
    }
}

fn no_thread(error: &io::Error) -> Fault {
    Fault::new(FaultCode::NoBrowser, "the daemon cannot start a thread").caused_by(error)
}
