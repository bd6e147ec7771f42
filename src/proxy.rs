//! Which proxy a connection goes through, and the way through it, for HTTP and WebSocket alike.
//!
//! Every client library reads the environment differently, so the choice is made here, once: loopback never,
//! `HTTPS_PROXY`, then `ALL_PROXY`, unless `NO_PROXY` names the host. Only HTTP proxies are spoken to, by `CONNECT`;
//! another kind is refused by name, never bypassed. The proxy's URL may hold a password and is never in a message.
//!
//! Read [`Proxies`] first, then [`connect`].

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::secret::Secret;
use crate::wire::{Fault, FaultCode};

/// More than any proxy's answer to `CONNECT` needs.
const HEAD_LIMIT: usize = 16 << 10;

/// The proxy settings of one environment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Proxies {
    setting: Option<Setting>,
    bypass: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Setting {
    variable: String,
    url: Secret,
}

impl Proxies {
    /// Reads the settings through `var`; an empty value is unset. Nothing is judged before a connection needs it.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Self {
        let read = |name: &str| var(name).filter(|value| !value.trim().is_empty());
        let setting = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].into_iter().find_map(|variable| {
            let url = Secret::new(read(variable)?);
            let variable = variable.to_owned();
            Some(Setting { variable, url })
        });
        let bypass = read("NO_PROXY").or_else(|| read("no_proxy"));
        Self { setting, bypass: bypass.unwrap_or_default() }
    }

    /// The proxy for a connection to `target`; `None` for a direct one.
    ///
    /// # Errors
    /// `setting`, naming the variable, for a proxy that cannot be used: SOCKS, TLS to the proxy, no URL.
    pub fn select(&self, target: &Url) -> Result<Option<Proxy>, Fault> {
        match &self.setting {
            Some(setting) if !is_loopback(target) && !self.bypasses(target) => setting.proxy().map(Some),
            _ => Ok(None),
        }
    }

    /// What must not be seen of the settings.
    pub fn secrets(&self) -> Vec<Secret> {
        let Some(setting) = &self.setting else {
            return Vec::new();
        };
        let password = setting.proxy().ok().and_then(|proxy| proxy.password);
        std::iter::once(setting.url.clone()).chain(password).collect()
    }

    fn bypasses(&self, target: &Url) -> bool {
        let (Some(host), Some(port)) = (target.host(), target.port_or_known_default()) else {
            return false;
        };
        self.bypass
            .split([',', ' ', '\t'])
            .filter(|entry| !entry.is_empty())
            .any(|entry| Bypass::parse(entry).covers(&host, port))
    }
}

impl Setting {
    fn proxy(&self) -> Result<Proxy, Fault> {
        let text = self.url.expose().trim();
        let text = match text.contains("://") {
            true => text.to_owned(),
            false => format!("http://{text}"),
        };
        let url = Url::parse(&text).map_err(|_| self.refuse("is not the URL of a proxy"))?;
        match url.scheme() {
            "http" => Proxy::from_url(&url).ok_or_else(|| self.refuse("names no proxy host")),
            scheme if scheme.starts_with("socks") => Err(self.refuse("names a SOCKS proxy")),
            "https" => Err(self.refuse("names a proxy that is reached by TLS")),
            _ => Err(self.refuse("is not the URL of an HTTP proxy")),
        }
    }

    fn refuse(&self, what: &str) -> Fault {
        let variable = &self.variable;
        Fault::new(FaultCode::Setting, format!("{variable} {what}")).hint(format!(
            "only HTTP proxies are supported: set {variable}=http://HOST:PORT, or name the gateway's host in NO_PROXY"
        ))
    }
}

/// Whether `url` names this machine: `localhost`, 127.0.0.0/8, `::1`.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// One entry of `NO_PROXY`.
struct Bypass<'a> {
    host: &'a str,
    port: Option<u16>,
}

impl<'a> Bypass<'a> {
    fn parse(entry: &'a str) -> Self {
        if let Some((host, rest)) = entry.strip_prefix('[').and_then(|e| e.split_once(']')) {
            let port = rest.strip_prefix(':').and_then(|port| port.parse().ok());
            return Self { host, port };
        }
        match entry.split_once(':') {
            // A second colon: an IPv6 address without brackets.
            Some((host, port)) if !port.contains(':') => Self { host, port: port.parse().ok() },
            _ => Self { host: entry, port: None },
        }
    }

    fn covers(&self, host: &Host<&str>, port: u16) -> bool {
        self.port.is_none_or(|own| own == port) && (self.host == "*" || self.covers_host(host))
    }

    fn covers_host(&self, host: &Host<&str>) -> bool {
        match *host {
            Host::Domain(name) => self.covers_name(name),
            Host::Ipv4(address) => self.covers_address(address.into()),
            Host::Ipv6(address) => self.covers_address(address.into()),
        }
    }

    fn covers_name(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let own = self.host.to_ascii_lowercase();
        let own = own.trim_start_matches("*.").trim_matches('.');
        // A bare suffix counts at a dot only: `ample.com` is not `example.com`.
        name.strip_suffix(own).is_some_and(|rest| !own.is_empty() && (rest.is_empty() || rest.ends_with('.')))
    }

    fn covers_address(&self, address: IpAddr) -> bool {
        let (net, length) = match self.host.split_once('/') {
            Some((net, length)) => (net, length.parse().ok()),
            None => (self.host, Some(u32::MAX)),
        };
        match (net.parse::<IpAddr>(), length) {
            (Ok(net), Some(length)) => same_network(net, address, length),
            _ => false,
        }
    }
}

/// Whether the first `length` bits of both are the same; all of them for a length over the address's own.
fn same_network(left: IpAddr, right: IpAddr, length: u32) -> bool {
    let differing = match (left, right) {
        (IpAddr::V4(left), IpAddr::V4(right)) => (left.to_bits() ^ right.to_bits()).leading_zeros(),
        (IpAddr::V6(left), IpAddr::V6(right)) => (left.to_bits() ^ right.to_bits()).leading_zeros(),
        _ => return false,
    };
    let bits = if left.is_ipv4() { 32 } else { 128 };
    differing >= length.min(bits)
}

/// An HTTP proxy.
#[derive(Debug, Clone, PartialEq)]
pub struct Proxy {
    host: String,
    port: u16,
    user: Option<Secret>,
    password: Option<Secret>,
}

impl Proxy {
    fn from_url(url: &Url) -> Option<Self> {
        let decode = |text: &str| Secret::new(percent_decode_str(text).decode_utf8_lossy().into());
        Some(Self {
            host: url.host_str().filter(|host| !host.is_empty())?.to_owned(),
            port: url.port_or_known_default()?,
            user: Some(url.username()).filter(|u| !u.is_empty()).map(decode),
            password: url.password().map(decode),
        })
    }

    /// The same proxy in the words of `ureq`; `None` where it has no words for it.
    pub fn for_ureq(&self) -> Option<ureq::Proxy> {
        let mut builder = ureq::Proxy::builder(ureq::ProxyProtocol::Http).host(&self.host).port(self.port);
        if let Some(user) = &self.user {
            builder = builder.username(user.expose());
        }
        if let Some(password) = &self.password {
            builder = builder.password(password.expose());
        }
        builder.build().ok()
    }

    fn tunnel(&self, host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
        let mut stream = dial(&self.host, self.port, deadline)?;
        stream.set_write_timeout(Some(left(deadline)?))?;
        stream.write_all(self.request(host, port).expose().as_bytes())?;
        let status = read_status(&mut stream, deadline)?;
        if !(200..300).contains(&status) {
            return Err(io::Error::other(format!("the proxy refused to connect: HTTP {status}")));
        }
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        Ok(stream)
    }

    fn request(&self, host: &str, port: u16) -> Secret {
        let host = match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        let authorization = self.authorization();
        Secret::new(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{authorization}\r\n"))
    }

    fn authorization(&self) -> String {
        let text = |part: &Option<Secret>| part.as_ref().map_or("", Secret::expose).to_owned();
        if self.user.is_none() && self.password.is_none() {
            return String::new();
        }
        let pair = format!("{}:{}", text(&self.user), text(&self.password));
        let pair = BASE64_STANDARD.encode(pair);
        format!("Proxy-Authorization: Basic {pair}\r\n")
    }
}

/// Connects to `host`:`port`, through `proxy` where there is one, until `deadline` at the latest.
///
/// # Errors
/// `TimedOut` at the deadline; `NotFound` for a name that nothing resolves; what the kernel or the proxy says.
pub fn connect(host: &str, port: u16, proxy: Option<&Proxy>, deadline: Instant) -> io::Result<TcpStream> {
    match proxy {
        Some(proxy) => proxy.tunnel(host, port, deadline),
        None => dial(host, port, deadline),
    }
}

fn dial(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let addresses = resolve(host, port, deadline)?;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (tried, address) in addresses.iter().enumerate() {
        // Each address gets its share, so that a silent first one leaves time for the second.
        let share = left(deadline)? / (addresses.len() - tried) as u32;
        match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    // The system's resolver has no deadline: it is asked on a thread that is left behind when it takes too long.
    let (sender, receiver) = mpsc::channel();
    let name = bare.to_owned();
    std::thread::Builder::new().spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs();
        // Nobody listens once the deadline has passed.
        let _ = sender.send(found.map(Vec::from_iter));
    })?;
    let found = receiver.recv_timeout(left(deadline)?).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    found.map_err(|_| io::Error::new(io::ErrorKind::NotFound, "the host was not found"))
}

/// Reads the head of the proxy's answer and not a byte more: what follows belongs to the tunnel.
fn read_status(stream: &mut TcpStream, deadline: Instant) -> io::Result<u16> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => head.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if head.len() > HEAD_LIMIT {
            return Err(not_a_proxy());
        }
    }
    status_of(&head).ok_or_else(not_a_proxy)
}

fn status_of(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    let (version, rest) = line.split_once(' ')?;
    let status = rest.split(' ').next()?;
    version.starts_with("HTTP/1.").then_some(())?;
    status.parse().ok()
}

fn not_a_proxy() -> io::Error {
    let text = "the proxy did not answer as an HTTP proxy does";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        let map: HashMap<_, _> = variables.iter().copied().collect();
        Proxies::from_env(|name| map.get(name).map(|value| (*value).to_owned()))
    }

    fn is_proxied(no_proxy: &str, target: &str) -> bool {
        proxies(&[("ALL_PROXY", "http://proxy:3128"), ("NO_PROXY", no_proxy)])
            .select(&Url::parse(target).unwrap())
            .unwrap()
            .is_some()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn the_first_variable_that_is_not_empty_decides() {
        let port = |variables: &[(&str, &str)]| {
            let target = Url::parse("https://example.com").unwrap();
            let proxy = proxies(variables).select(&target).unwrap();
            proxy.map(|proxy| proxy.port)
        };

        assert_eq!(port(&[]), None);
        assert_eq!(port(&[("HTTP_PROXY", "http://p:1")]), None);
        assert_eq!(port(&[("ALL_PROXY", "http://p:1"), ("https_proxy", "p:2")]), Some(2));
        assert_eq!(port(&[("HTTPS_PROXY", ""), ("all_proxy", "p")]), Some(80));
    }

    #[test]
    fn loopback_is_never_proxied() {
        for target in ["http://localhost:1", "http://127.9.9.9", "http://[::1]", "ws://LOCALHOST"] {
            assert!(!is_proxied("", target), "{target}");
        }
        assert!(is_proxied("", "https://localhost.example.com"));
    }

    #[test]
    fn no_proxy_knows_hosts_suffixes_ports_networks_and_the_star() {
        for (no_proxy, target, proxied) in [
            ("example.com", "https://example.com", false),
            ("EXAMPLE.com", "https://a.b.Example.COM", false),
            (".example.com", "https://a.example.com", false),
            ("*.example.com", "https://a.example.com", false),
            ("ample.com", "https://example.com", true),
            ("other, example.com", "wss://example.com", false),
            ("example.com:443", "wss://example.com", false),
            ("example.com:8443", "https://example.com", true),
            ("10.0.0.0/8", "https://10.200.3.4", false),
            ("10.0.0.0/8", "https://11.0.0.1", true),
            ("10.0.0.0/8:99", "https://10.0.0.1", true),
            ("10.0.0.1", "https://10.0.0.1", false),
            ("fd00::/8", "https://[fd12::1]", false),
            ("[fd12::1]:443", "https://[fd12::1]", false),
            ("[fd12::1]:444", "https://[fd12::1]", true),
            ("0.0.0.0/0", "https://[fd12::1]", true),
            ("*", "https://example.com", false),
            ("*:444", "https://example.com", true),
            (".", "https://example.com", true),
        ] {
            assert_eq!(is_proxied(no_proxy, target), proxied, "{no_proxy} {target}");
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_refused_by_name_and_unseen() {
        let target = Url::parse("https://example.com").unwrap();
        for (url, said) in [
            ("socks5://u:canary@p:1080", "SOCKS"),
            ("socks5h://canary", "SOCKS"),
            ("https://u:canary@p", "TLS"),
            ("http://u:canary@:1", "ALL_PROXY"),
            ("ftp://canary", "HTTP proxy"),
        ] {
            let fault = proxies(&[("ALL_PROXY", url)]).select(&target).unwrap_err();

            assert_eq!(fault.code, FaultCode::Setting);
            assert!(fault.message.contains("ALL_PROXY"), "{fault}");
            assert!(fault.message.contains(said), "{fault}");
            assert!(!format!("{fault:?}").contains("canary"));
        }
    }

    #[test]
    fn settings_cross_a_pipe_whole() {
        let before = proxies(&[("HTTPS_PROXY", "http://u:p%40ss@p:1"), ("no_proxy", "a,b")]);

        let text = serde_json::to_string(&before).unwrap();

        assert_eq!(serde_json::from_str::<Proxies>(&text).unwrap(), before);
        assert_eq!(before.secrets()[1].expose(), "p@ss");
    }

    /// A proxy that answers one `CONNECT` with `answer`; its thread returns the request it saw.
    fn proxy_that_answers(answer: &'static str) -> (Proxies, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://us%65r:p%40ss@{}", listener.local_addr().unwrap());
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        (proxies(&[("ALL_PROXY", &url)]), serving)
    }

    #[test]
    fn a_tunnel_is_asked_for_with_credentials_and_begins_after_the_answers_head() {
        let (proxies, serving) = proxy_that_answers("HTTP/1.1 200 OK\r\nVia: x\r\n\r\nfirst");
        let proxy = proxies.select(&Url::parse("wss://gate.example").unwrap());

        let mut stream = connect("gate.example", 443, proxy.unwrap().as_ref(), soon()).unwrap();

        let mut read = String::new();
        stream.read_to_string(&mut read).unwrap();
        assert_eq!(read, "first");
        assert_eq!(
            serving.join().unwrap(),
            "CONNECT gate.example:443 HTTP/1.1\r\nHost: gate.example:443\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"
        );
    }

    #[test]
    fn a_proxy_that_refuses_is_told_by_its_status() {
        let (proxies, serving) = proxy_that_answers("HTTP/1.1 407 No\r\n\r\n");
        let proxy = proxies.select(&Url::parse("wss://gate.example").unwrap());

        let error = connect("gate.example", 443, proxy.unwrap().as_ref(), soon()).unwrap_err();

        assert_eq!(error.to_string(), "the proxy refused to connect: HTTP 407");
        serving.join().unwrap();
    }

    #[test]
    fn a_deadline_ends_a_silent_proxy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let proxy = proxies(&[("ALL_PROXY", &url)]);
        let proxy = proxy.select(&Url::parse("wss://gate.example").unwrap());

        let deadline = Instant::now() + Duration::from_millis(50);
        let error = connect("gate.example", 443, proxy.unwrap().as_ref(), deadline).unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
