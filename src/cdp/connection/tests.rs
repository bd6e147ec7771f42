//! A connection against a peer on a loopback port: what keeps it alive, what ends it, and what it leaves behind.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};

use tungstenite::{Message, WebSocket as Socket};
use url::Url;

use super::*;
use crate::cdp::dial;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

type Peer = Socket<TcpStream>;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A connection that is impatient with silence, and pings often.
fn impatient() -> KeepAlive {
    KeepAlive { ping_every: ms(20), silence: ms(100), last_word: ms(100) }
}

/// Connects to a peer that does `act`; also gives what the connection will say about its end.
fn connect<T: Send + 'static>(
    keep_alive: KeepAlive,
    act: impl FnOnce(Peer) -> T + Send + 'static,
) -> (Connection, JoinHandle<T>, Receiver<CloseReason>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = thread::spawn(move || act(tungstenite::accept(listener.accept().unwrap().0).unwrap()));
    let url = Url::parse(&format!("ws://{address}/")).unwrap();
    let socket = dial(&url, TcpStream::connect(address).unwrap(), Instant::now() + PATIENCE).unwrap();
    let (told, end) = mpsc::channel();
    let connection = Connection::open(Box::new(socket), keep_alive, move |reason| drop(told.send(reason))).unwrap();
    (connection, peer, end)
}

/// The next command: its id and its method.
fn command(peer: &mut Peer) -> Option<(u64, String)> {
    loop {
        if let Message::Text(text) = peer.read().ok()? {
            let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
            return Some((frame["id"].as_u64().unwrap(), frame["method"].as_str().unwrap().to_owned()));
        }
    }
}

fn answer(peer: &mut Peer, id: u64) {
    peer.send(Message::text(format!("{{\"id\":{id},\"result\":{{}}}}"))).unwrap();
}

fn call(connection: &Connection, within: Duration) -> Result<(), CallError> {
    let caller = connection.caller(&Cancel::new());
    caller.call(&Call::browser("Test.call", "{}"), Instant::now() + within).map(drop)
}

#[test]
fn a_quiet_connection_is_pinged() {
    let (_connection, peer, _) = connect(impatient(), |mut peer| {
        let mut pings = 0;
        while pings < 3 {
            pings += u32::from(peer.read().unwrap().is_ping());
        }
        pings
    });

    assert_eq!(peer.join().unwrap(), 3);
}

#[test]
fn a_command_within_its_deadline_may_take_its_time() {
    let (connection, peer, _) = connect(impatient(), |mut peer| {
        let (id, _) = command(&mut peer).unwrap();
        // No pong, no byte, for several times the silence that is allowed otherwise.
        thread::sleep(ms(600));
        answer(&mut peer, id);
        peer
    });

    call(&connection, PATIENCE).unwrap();

    assert_eq!(connection.closed(), None);
    drop(peer.join().unwrap());
}

#[test]
fn a_frame_that_takes_long_is_a_sign_of_life() {
    let (connection, peer, _) = connect(impatient(), |mut peer| {
        let event = format!("{{\"method\":\"Test.slow\",\"params\":{{\"text\":\"{}\"}}}}", "x".repeat(200));
        let mut bytes = vec![0x81, 126];
        bytes.extend((event.len() as u16).to_be_bytes());
        bytes.extend(event.as_bytes());
        for piece in bytes.chunks(8) {
            peer.get_mut().write_all(piece).unwrap();
            thread::sleep(ms(20));
        }
        peer
    });
    let caller = connection.caller(&Cancel::new());
    let slow = caller.subscribe("Test.slow", None);

    let event = caller.next(&slow, Instant::now() + PATIENCE).unwrap();

    assert!(event.params().contains("xxx"));
    drop(peer.join().unwrap());
}

#[test]
fn a_browser_that_says_nothing_when_asked_is_lost() {
    let (connection, peer, end) = connect(impatient(), |mut peer| {
        // Read by hand: the library would answer the pings.
        let mut sent = Vec::new();
        // It ends when the connection is given up, in whatever way.
        let _ = peer.get_mut().read_to_end(&mut sent);
        sent.len()
    });

    let reason = end.recv_timeout(PATIENCE).unwrap();

    assert!(matches!(reason, CloseReason::Silent(_)), "{reason:?}");
    assert!(matches!(call(&connection, PATIENCE), Err(CallError::Closed { written: false, .. })));
    assert!(peer.join().unwrap() > 0, "it was asked");
}

#[test]
fn replies_that_never_came_leave_nothing_and_may_come_late() {
    let (connection, peer, _) = connect(KeepAlive::default(), |mut peer| {
        let ids: Vec<u64> = (0..1000).map(|_| command(&mut peer).unwrap().0).collect();
        // The next command says that the others were given up.
        let (id, _) = command(&mut peer).unwrap();
        ids.into_iter().for_each(|late| answer(&mut peer, late));
        answer(&mut peer, id);
        peer
    });
    let caller = connection.caller(&Cancel::new());
    let calls = vec![Call::browser("Test.never", "{}"); 1000];

    let replies = caller.call_all(&calls, Instant::now() + ms(300));

    assert!(replies.iter().all(|reply| matches!(reply, Err(CallError::NoReply { .. }))));
    assert!(is_empty(&connection));
    call(&connection, PATIENCE).unwrap();
    assert!(is_empty(&connection));
    assert_eq!(connection.statistics().odd_frames, 1000);
    drop(peer.join().unwrap());
}

#[test]
fn what_nobody_waits_for_leaves_nothing_when_it_is_never_answered() {
    let (connection, peer, _) = connect(KeepAlive::default(), |mut peer| {
        let posts: Vec<_> = (0..100).map(|_| command(&mut peer).unwrap()).collect();
        answer(&mut peer, posts[0].0);
        let (id, _) = command(&mut peer).unwrap();
        answer(&mut peer, id);
        peer
    });
    let caller = connection.caller(&Cancel::new());

    for _ in 0..100 {
        caller.post(&Call::browser("Test.post", "{}")).unwrap();
    }

    assert!(is_empty(&connection));
    call(&connection, PATIENCE).unwrap();
    assert_eq!(connection.statistics().odd_frames, 0);
    drop(peer.join().unwrap());
}

fn is_empty(connection: &Connection) -> bool {
    matches!(&*connection.shared.pending(), Pending::Open(calls) if calls.is_empty())
}
