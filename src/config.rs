//! The settings: every environment variable that counts, read once, here and nowhere else.
//!
//! An empty value is unset. A bad one is a [`Fault`] that names the variable and never repeats its value, which may
//! hold a credential. Nothing here reads a file or dials anything, and there is no settings file: a cloned
//! repository must not be able to point a token at another host.
//!
//! [`Identity`] is the little that finds a session, and cannot fail; [`Settings`] is everything that a run needs.
//! What is told by a base URL alone is in `gateway_choice`, how a value is read in `variables`.

mod gateway_choice;
mod variables;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::raw_path::RawPath;
use crate::secret::Secret;
use crate::wire::{Fault, FaultCode};
use crate::workspace::SessionKey;

pub use gateway_choice::GatewayChoice;
use variables::Variables;
pub use variables::{seconds, session_name};

/// Where a value comes from: the environment, or a test's table.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The environment variable that names a session.
pub const NAME: &str = "GHOST_BROWSER_NAME";

/// The environment variable that names the only state folder that counts.
pub const RUNTIME_DIR: &str = "GHOST_BROWSER_RUNTIME_DIR";

/// The caller's variables that a Chromium of this machine gets: what finds programs, words, fonts, certificates. The daemon itself
/// starts with none.
pub const FOR_CHROMIUM: &[&str] = &[
    "PATH",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NUMERIC",
    "LC_TIME",
    "TZ",
    "LD_LIBRARY_PATH",
    "FONTCONFIG_FILE",
    "FONTCONFIG_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CHROME_DEVEL_SANDBOX",
    "NIX_LD",
    "NIX_LD_LIBRARY_PATH",
];

/// More of them, for a Chromium with a window.
pub const FOR_A_WINDOW: &[&str] = &[
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_TYPE",
    "XDG_CURRENT_DESKTOP",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// More of them, where they hold no user name.
pub const FOR_THE_NETWORK: &[&str] =
    &["http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

/// What finds a session. Made from anything, since `status` and `stop` have to work beside a bad setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The session's name.
    pub name: String,
    /// The gateway as the session key knows it: the base URL without its query, or `local`.
    pub gateway: String,
    /// What the gateway is called: its host, or `local`.
    pub gateway_name: String,
    /// `GHOST_BROWSER_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
}

impl Identity {
    /// Reads what there is; what cannot be read is taken as it is.
    pub fn from_env(lookup: Lookup) -> Self {
        let variables = Variables(lookup);
        Self {
            name: variables.raw(NAME).map_or_else(default_name, |name| name.to_string_lossy().into_owned()),
            gateway: gateway_choice::key(&variables),
            gateway_name: gateway_choice::read(&variables)
                .map_or_else(|_| "unknown".to_owned(), |choice| choice.display_name().to_owned()),
            runtime_dir: variables.raw(RUNTIME_DIR).map(PathBuf::from),
        }
    }
}

fn default_name() -> String {
    "default".to_owned()
}

/// Everything that a run needs and the daemon keeps. Serialised for the pipe to the daemon only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Where browsers come from.
    pub gateway: GatewayChoice,
    /// `APIFY_TOKEN`.
    pub token: Option<Secret>,
    /// The country that a hosted browser is wanted in: two upper-case letters.
    pub country: Option<String>,
    /// How long an unused browser is held.
    pub idle: Duration,
    /// How long callers wait for a browser.
    pub allocation_timeout: Duration,
    /// How long the WebSocket handshake may take.
    pub ws_timeout: Duration,
    /// How a Chromium of this machine is started.
    pub chromium: ChromiumSettings,
    /// The proxy variables, as they stand.
    pub proxy: ProxyVariables,
    /// How much is logged.
    pub log: LogLevel,
    /// What the caller lets its scripts know; the caller's, so the daemon does not keep it.
    #[serde(skip)]
    pub secrets: SecretSettings,
    /// The caller's variables that Chromium needs, by name.
    pub environment: BTreeMap<String, String>,
}

/// How a Chromium of this machine is started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChromiumSettings {
    /// The program: a path, or a name to look for on `PATH`.
    pub program: Option<RawPath>,
    /// More arguments for it.
    pub args: Vec<String>,
    /// Whether it shows a window.
    pub headed: bool,
    /// A profile folder that is kept.
    pub profile: Option<RawPath>,
}

/// The proxy variables, as they stand; upper case wins over lower. A proxy's URL may hold credentials.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxyVariables {
    /// `HTTPS_PROXY`.
    pub https: Option<Secret>,
    /// `ALL_PROXY`.
    pub all: Option<Secret>,
    /// `NO_PROXY`.
    pub no: Option<String>,
}

/// `GHOST_BROWSER_SECRETS` and `GHOST_BROWSER_SECRET_CMD`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SecretSettings {
    /// The names that scripts may ask for.
    pub allowed: Vec<AllowedSecret>,
    /// The program that is asked for a value that is not in the environment.
    pub command: Option<PathBuf>,
}

/// One name that scripts may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedSecret {
    /// The name.
    pub name: String,
    /// The only origin whose pages it is given to.
    pub origin: Option<String>,
}

/// `GHOST_BROWSER_LOG`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What failed.
    #[default]
    Error,
    /// What happened.
    Info,
    /// How it happened.
    Debug,
}

impl Settings {
    /// Reads and checks every variable.
    ///
    /// # Errors
    /// [`FaultCode::Setting`], naming the first variable that is bad.
    pub fn from_env(lookup: Lookup) -> Result<Self, Fault> {
        let variables = Variables(lookup);
        check_name(&variables)?;
        Ok(Self {
            gateway: gateway_choice::read(&variables)?,
            token: variables.secret("APIFY_TOKEN")?,
            country: country(&variables)?,
            idle: variables.seconds("GHOST_BROWSER_IDLE_SECONDS", 600)?,
            allocation_timeout: variables.seconds("GHOST_BROWSER_ALLOCATION_TIMEOUT", 180)?,
            ws_timeout: variables.seconds("GHOST_BROWSER_WS_TIMEOUT", 30)?,
            chromium: ChromiumSettings::read(&variables)?,
            proxy: ProxyVariables::read(&variables)?,
            log: log_level(&variables)?,
            secrets: SecretSettings::read(&variables)?,
            environment: environment(&variables),
        })
    }

    /// The token that would be sent: the base URL's own, else the caller's; none to a local Chromium.
    pub fn effective_token(&self) -> Option<Secret> {
        match &self.gateway {
            GatewayChoice::Local => None,
            GatewayChoice::Hosted { base, .. } => gateway_choice::token_of(base).or_else(|| self.token.clone()),
        }
    }

    /// A digest of [`Settings::effective_token`], which tells nothing of it and differs in every session.
    pub fn credential(&self, session: &SessionKey) -> Option<String> {
        let token = self.effective_token()?;
        let mut hash = Sha256::new();
        hash.update(session.as_str());
        hash.update([0]);
        hash.update(token.expose());
        Some(hex(&hash.finalize()))
    }

    /// A digest of what the daemon keeps and no session key or credential tells; a difference is worth a warning.
    pub fn digest(&self) -> String {
        let timing = (self.idle, self.log);
        let kept = match &self.gateway {
            GatewayChoice::Local => serde_json::to_vec(&(timing, &self.chromium)),
            GatewayChoice::Hosted { .. } => {
                serde_json::to_vec(&(timing, &self.country, self.allocation_timeout, self.ws_timeout, &self.proxy.no))
            }
        };
        let kept = kept.expect("settings are plain data, which is always JSON");
        hex(&Sha256::digest(kept)[..8])
    }
}

impl ChromiumSettings {
    fn read(variables: &Variables) -> Result<Self, Fault> {
        Ok(Self {
            program: variables.program("GHOST_BROWSER_CHROMIUM")?,
            args: chromium_args(variables)?,
            headed: variables.flag("GHOST_BROWSER_HEADED")?,
            profile: variables.path("GHOST_BROWSER_PROFILE")?,
        })
    }
}

/// Further arguments for Chromium. Where it answers and what it writes to is not theirs: a port would be open to every
/// user and page, and nobody wipes a profile that we do not know.
fn chromium_args(variables: &Variables) -> Result<Vec<String>, Fault> {
    const NAME: &str = "GHOST_BROWSER_CHROMIUM_ARGS";
    let args = variables.words(NAME)?;
    for arg in &args {
        // Chromium reads one dash like two.
        let option = arg.trim_start_matches('-').split('=').next().unwrap_or_default();
        if option == "user-data-dir" {
            return Err(bad(NAME, "--user-data-dir is not taken; GHOST_BROWSER_PROFILE=DIR keeps a profile"));
        }
        if option.starts_with("remote-debugging-") {
            return Err(bad(NAME, "--remote-debugging-… is not taken: the browser is driven over its pipe"));
        }
    }
    Ok(args)
}

impl ProxyVariables {
    fn read(variables: &Variables) -> Result<Self, Fault> {
        let either = |upper, lower| match variables.secret(upper)? {
            Some(value) => Ok(Some(value)),
            None => variables.secret(lower),
        };
        Ok(Self {
            https: either("HTTPS_PROXY", "https_proxy")?,
            all: either("ALL_PROXY", "all_proxy")?,
            no: either("NO_PROXY", "no_proxy")?.map(|hosts| hosts.expose().to_owned()),
        })
    }
}

impl SecretSettings {
    fn read(variables: &Variables) -> Result<Self, Fault> {
        const LIST: &str = "GHOST_BROWSER_SECRETS";
        let list = variables.text(LIST)?.unwrap_or_default();
        let names = list.split(',').map(str::trim);
        Ok(Self {
            allowed: names
                .filter(|item| !item.is_empty())
                .map(|item| AllowedSecret::parse(item).ok_or_else(|| bad(LIST, SECRETS_FORM)))
                .collect::<Result<_, _>>()?,
            command: variables.program("GHOST_BROWSER_SECRET_CMD")?.map(|program| program.to_path_buf()),
        })
    }
}

const SECRETS_FORM: &str = "expected names separated by commas, each NAME or NAME@https://shop.example";

impl AllowedSecret {
    fn parse(item: &str) -> Option<Self> {
        let (name, origin) = match item.split_once('@') {
            Some((name, origin)) => (name, Some(origin)),
            None => (item, None),
        };
        let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let origin = match origin {
            Some(text) => Some(origin_of(text)?),
            None => None,
        };
        named.then(|| Self { name: name.to_owned(), origin })
    }
}

fn origin_of(text: &str) -> Option<String> {
    let origin = url::Url::parse(text).ok()?.origin();
    origin.is_tuple().then(|| origin.ascii_serialization())
}

fn check_name(variables: &Variables) -> Result<(), Fault> {
    let name = variables.text(NAME)?.unwrap_or_default();
    session_name(&name).map(drop).map_err(|expected| bad(NAME, expected))
}

fn country(variables: &Variables) -> Result<Option<String>, Fault> {
    const COUNTRY: &str = "GHOST_BROWSER_COUNTRY";
    match variables.text(COUNTRY)? {
        Some(text) if text.len() == 2 && text.bytes().all(|b| b.is_ascii_alphabetic()) => {
            Ok(Some(text.to_ascii_uppercase()))
        }
        Some(_) => Err(bad(COUNTRY, "expected two letters, such as KR")),
        None => Ok(None),
    }
}

fn log_level(variables: &Variables) -> Result<LogLevel, Fault> {
    const LOG: &str = "GHOST_BROWSER_LOG";
    match variables.text(LOG)?.as_deref() {
        None => Ok(LogLevel::default()),
        Some("off") => Ok(LogLevel::Off),
        Some("error") => Ok(LogLevel::Error),
        Some("info") => Ok(LogLevel::Info),
        Some("debug") => Ok(LogLevel::Debug),
        Some(_) => Err(bad(LOG, "expected off, error, info or debug")),
    }
}

fn environment(variables: &Variables) -> BTreeMap<String, String> {
    // Chromium gets another home; the user's own tells where their certificates and fonts are.
    let known = [FOR_CHROMIUM, FOR_A_WINDOW, FOR_THE_NETWORK, &["HOME"]].into_iter().flatten();
    known
        .filter_map(|name| {
            let value = variables.raw(name)?.to_string_lossy().into_owned();
            // A user name comes with a password, and Chromium's environment is there for others to read.
            if name.to_ascii_lowercase().ends_with("_proxy") && value.contains('@') {
                return None;
            }
            Some(((*name).to_owned(), value))
        })
        .collect()
}

/// The fault of a variable whose value is bad. The value itself is not repeated: it may be a credential.
fn bad(name: &str, expected: &str) -> Fault {
    Fault::new(FaultCode::Setting, format!("{name} has a bad value: {expected}"))
        .hint(format!("set {name} anew, or unset it for its default"))
}

/// Bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(nibble.into(), 16).expect("a nibble is a digit"));
        }
        text
    })
}
