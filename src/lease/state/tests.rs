use proptest::prelude::*;

use super::*;
use crate::gateway::hosted;
use crate::secret::Secret;
use crate::wire::FaultCode;

fn capability(id: &str) -> Capability {
    Capability::Hosted(hosted::Release::of_nobody(id))
}

fn id_of(capability: &Capability) -> String {
    capability.secrets()[0].expose().to_owned()
}

fn endpoint() -> Endpoint {
    Endpoint::WebSocket(Secret::new("wss://b.example/".into()))
}

fn granted(id: &str) -> Event {
    E::Answered(Allocation::Granted(Grant {
        endpoint: endpoint(),
        capability: capability(id),
        notice: Some("read this".into()),
    }))
}

fn fault(message: &str) -> Fault {
    Fault::new(FaultCode::ReleaseUnconfirmed, message)
}

fn failed(message: &str) -> Result<(), ReleaseError> {
    Err(ReleaseError::Failed(fault(message)))
}

fn released(attempt: u32, outcome: Result<(), ReleaseError>) -> Event {
    E::Released { attempt, outcome }
}

const STATES: [&str; 9] = [
    "Vacant",
    "Asking",
    "Abandoning",
    "Held",
    "Closing",
    "Releasing 1 with a cause",
    "Releasing 2",
    "Unpaid 1",
    "Owed",
];

fn state(name: &str, now: Instant) -> Lease {
    let capability = capability("id");
    let later = now + Duration::from_secs(1);
    match name {
        "Vacant" => L::Vacant,
        "Asking" => L::Asking,
        "Abandoning" => L::Abandoning,
        "Held" => L::Held { capability },
        "Closing" => L::Closing { capability, until: later },
        "Releasing 1 with a cause" => L::Releasing { capability, attempt: 1, cause: Some(fault("cause")) },
        "Releasing 2" => L::Releasing { capability, attempt: 2, cause: None },
        "Unpaid 1" => L::Unpaid { capability, attempts: 1, retry_at: later, why: fault("why") },
        "Owed" => L::Owed { why: fault("why") },
        other => panic!("no state {other}"),
    }
}

fn state_name(lease: &Lease) -> String {
    match lease {
        L::Vacant => "Vacant".into(),
        L::Asking => "Asking".into(),
        L::Abandoning => "Abandoning".into(),
        L::Held { .. } => "Held".into(),
        L::Closing { .. } => "Closing".into(),
        L::Releasing { attempt, cause: Some(_), .. } => format!("Releasing {attempt} with a cause"),
        L::Releasing { attempt, .. } => format!("Releasing {attempt}"),
        L::Unpaid { attempts, .. } => format!("Unpaid {attempts}"),
        L::Owed { .. } => "Owed".into(),
    }
}

fn action_name(action: &Action) -> String {
    match action {
        A::Ask => "ask".into(),
        A::Abandon => "abandon".into(),
        A::Entrust(_) => "entrust".into(),
        A::Connect(_) => "connect".into(),
        A::Disconnect => "disconnect".into(),
        A::CloseStray(_) => "close stray".into(),
        A::Release { attempt, closed, .. } => match closed {
            true => format!("release {attempt} closed"),
            false => format!("release {attempt}"),
        },
        A::Settle(_) => "settle".into(),
        A::Notice(_) => "tell notice".into(),
        A::Report(News::Refused(_)) => "tell refused".into(),
        A::Report(News::Late(_)) => "tell late".into(),
        A::Report(News::Released) => "tell released".into(),
        A::Report(News::Unpaid(_)) => "tell unpaid".into(),
        A::Report(News::Owed(_)) => "tell owed".into(),
        A::Unasked(_) => "unasked".into(),
    }
}

const EVENTS: [&str; 21] = [
    "wanted",
    "unwanted",
    "stop",
    "retry",
    "expired",
    "granted",
    "refused",
    "unusable",
    "stray",
    "lost",
    "connection lost",
    "closed normally",
    "closed otherwise",
    "released 1",
    "failed 1",
    "unprovable 1",
    "released 2",
    "failed 2",
    "unprovable 2",
    "tick early",
    "tick late",
];

fn event(name: &str) -> Event {
    match name {
        "wanted" => E::Wanted,
        "unwanted" => E::Unwanted,
        "stop" => E::Stop,
        "retry" => E::Retry,
        "expired" => E::Expired(fault("late")),
        "granted" => granted("id"),
        "refused" => E::Answered(Allocation::Refused(fault("refused"))),
        "unusable" => E::Answered(Allocation::Unusable(capability("id"), fault("unusable"))),
        "stray" => E::Answered(Allocation::Stray(endpoint(), fault("stray"))),
        "lost" => E::Answered(Allocation::Lost(fault("lost"))),
        "connection lost" => E::ConnectionLost,
        "closed normally" => E::Closed { normally: true },
        "closed otherwise" => E::Closed { normally: false },
        "released 1" => released(1, Ok(())),
        "released 2" => released(2, Ok(())),
        "failed 1" => released(1, failed("failed")),
        "failed 2" => released(2, failed("failed")),
        "unprovable 1" => released(1, Err(ReleaseError::Unprovable(fault("unprovable")))),
        "unprovable 2" => released(2, Err(ReleaseError::Unprovable(fault("unprovable")))),
        "tick early" | "tick late" => E::Tick,
        other => panic!("no event {other}"),
    }
}

/// Everything that moves something. What is not here leaves the lease as it is and asks for nothing, except that a browser
/// which no lease asked for is never dropped.
const MOVES: &[(&str, &str, &str)] = &[
    ("Vacant", "wanted", "Asking: ask"),
    ("Asking", "unwanted", "Abandoning: abandon"),
    ("Asking", "stop", "Abandoning: abandon"),
    ("Asking", "expired", "Abandoning: abandon, tell late"),
    ("Asking", "granted", "Held: entrust, tell notice, connect"),
    ("Asking", "refused", "Vacant: settle, tell refused"),
    ("Asking", "unusable", "Releasing 1 with a cause: entrust, release 1"),
    ("Asking", "stray", "Owed: close stray, tell owed"),
    ("Asking", "lost", "Owed: tell owed"),
    ("Abandoning", "granted", "Releasing 1: entrust, release 1"),
    ("Abandoning", "refused", "Vacant: settle, tell refused"),
    ("Abandoning", "unusable", "Releasing 1 with a cause: entrust, release 1"),
    ("Abandoning", "stray", "Owed: close stray, tell owed"),
    ("Abandoning", "lost", "Owed: tell owed"),
    ("Held", "unwanted", "Closing: disconnect"),
    ("Held", "stop", "Closing: disconnect"),
    ("Held", "connection lost", "Releasing 1: release 1"),
    ("Closing", "connection lost", "Releasing 1: release 1"),
    ("Closing", "closed normally", "Releasing 1: release 1 closed"),
    ("Closing", "closed otherwise", "Releasing 1: release 1"),
    ("Closing", "tick late", "Releasing 1: release 1"),
    ("Releasing 1 with a cause", "closed normally", "Vacant: settle, tell refused"),
    ("Releasing 1 with a cause", "released 1", "Vacant: settle, tell refused"),
    ("Releasing 1 with a cause", "released 2", "Vacant: settle, tell refused"),
    ("Releasing 1 with a cause", "failed 1", "Unpaid 1: tell unpaid"),
    ("Releasing 1 with a cause", "unprovable 1", "Owed: tell owed"),
    ("Releasing 2", "closed normally", "Vacant: settle, tell released"),
    ("Releasing 2", "released 1", "Vacant: settle, tell released"),
    ("Releasing 2", "released 2", "Vacant: settle, tell released"),
    ("Releasing 2", "failed 2", "Unpaid 2: tell unpaid"),
    ("Releasing 2", "unprovable 2", "Owed: tell owed"),
    ("Unpaid 1", "stop", "Releasing 2: release 2"),
    ("Unpaid 1", "retry", "Releasing 2: release 2"),
    ("Unpaid 1", "closed normally", "Vacant: settle, tell released"),
    ("Unpaid 1", "released 1", "Vacant: settle, tell released"),
    ("Unpaid 1", "released 2", "Vacant: settle, tell released"),
    ("Unpaid 1", "tick late", "Releasing 2: release 2"),
    ("Owed", "stop", "Vacant: tell owed, settle"),
];

fn expected(state: &str, event: &str) -> String {
    let listed = MOVES.iter().find(|(s, e, _)| (*s, *e) == (state, event));
    match (listed, event) {
        (Some((_, _, outcome)), _) => (*outcome).to_owned(),
        (None, "granted" | "unusable" | "stray" | "lost") => format!("{state}: unasked"),
        (None, _) => format!("{state}: "),
    }
}

#[test]
fn every_event_in_every_state_does_what_the_table_says() {
    let now = Instant::now();
    for name in STATES {
        assert_eq!(state_name(&state(name, now)), name);
        for news in EVENTS {
            let when = match news {
                "tick late" => now + Duration::from_secs(2),
                _ => now,
            };

            let (lease, actions) = state(name, now).step(event(news), when);

            let actions: Vec<_> = actions.iter().map(action_name).collect();
            let outcome = format!("{}: {}", state_name(&lease), actions.join(", "));
            assert_eq!(outcome, expected(name, news), "{name} + {news}");
        }
    }
}

#[test]
fn a_release_is_tried_again_after_1_2_4_and_at_most_30_seconds() {
    let mut now = Instant::now();
    let (mut lease, _) = L::Held { capability: capability("id") }.step(E::ConnectionLost, now);

    for (attempt, pause) in (1..).zip([1, 2, 4, 8, 16, 30, 30, 30]) {
        (lease, _) = lease.step(released(attempt, failed("no")), now);
        assert_eq!(lease.due(), Some(now + Duration::from_secs(pause)));
        now += Duration::from_secs(pause);
        (lease, _) = lease.step(E::Tick, now);
        assert_eq!(state_name(&lease), format!("Releasing {}", attempt + 1));
    }
}

#[test]
fn an_allocation_that_failed_is_told_with_the_release_that_failed_after_it() {
    let now = Instant::now();

    let (lease, _) = state("Releasing 1 with a cause", now).step(released(1, failed("HTTP 500")), now);

    let L::Unpaid { why, .. } = lease else {
        panic!("not unpaid: {lease:?}");
    };
    assert_eq!(why.code, FaultCode::ReleaseUnconfirmed);
    assert_eq!(why.message, "cause");
    assert_eq!(why.context["caused_by"], serde_json::json!(["HTTP 500"]));
}

/// All leases of a daemon, and what became of each browser that any answer brought.
struct World {
    now: Instant,
    leases: Vec<Lease>,
    brought: u32,
    paid: u32,
    told: u32,
}

impl World {
    fn new() -> Self {
        Self { now: Instant::now(), leases: vec![L::Vacant], brought: 0, paid: 0, told: 0 }
    }

    /// Lets `event` happen to a lease, and holds every step to account: a browser is ours before and after, or it was paid, or told.
    fn feed(&mut self, index: usize, event: Event) {
        self.brought += u32::from(brings_debt(&event));
        let before = std::mem::replace(&mut self.leases[index], L::Vacant);
        let was_told = matches!(before, L::Owed { .. });
        let (after, actions) = before.step(event, self.now);
        let is_done = matches!(after, L::Vacant);
        self.leases[index] = after;
        for action in actions {
            match action {
                A::Settle(Some(_)) => self.paid += 1,
                A::Settle(None) => assert!(is_done),
                A::Report(News::Owed(_)) if !was_told => self.told += 1,
                A::Unasked(answer) => {
                    self.brought -= 1;
                    self.leases.push(L::Abandoning);
                    self.feed(self.leases.len() - 1, E::Answered(answer));
                }
                _ => {}
            }
        }
        self.hold_to_account();
    }

    fn hold_to_account(&self) {
        let held = self.leases.iter().filter(|lease| lease.capability().is_some());
        assert_eq!(self.brought, self.paid + self.told + held.count() as u32);
    }

    /// Lets every lease come to its end.
    fn end(&mut self) {
        for index in 0..self.leases.len() {
            let mut steps = 0;
            while let Some(event) = self.next_news(index) {
                self.now = self.leases[index].due().unwrap_or(self.now);
                self.feed(index, event);
                steps += 1;
                assert!(steps < 10, "no end to {:?}", self.leases[index]);
            }
        }
    }

    fn next_news(&self, index: usize) -> Option<Event> {
        Some(match &self.leases[index] {
            L::Vacant => return None,
            L::Asking | L::Held { .. } => E::Unwanted,
            L::Abandoning => E::Answered(Allocation::Lost(fault("lost"))),
            L::Closing { .. } | L::Unpaid { .. } => E::Tick,
            L::Releasing { attempt, .. } => released(*attempt, Ok(())),
            L::Owed { .. } => E::Stop,
        })
    }
}

fn brings_debt(event: &Event) -> bool {
    matches!(event, E::Answered(answer) if !matches!(answer, Allocation::Refused(_)))
}

proptest! {
    #[test]
    fn no_order_of_events_loses_a_browser(
        news in prop::collection::vec((0..EVENTS.len(), any::<prop::sample::Index>()), 0..60)
    ) {
        let mut world = World::new();
        for (kind, lease) in news {
            if EVENTS[kind] == "tick late" {
                world.now += Duration::from_secs(60);
            }
            world.feed(lease.index(world.leases.len()), event(EVENTS[kind]));
        }
        world.end();
        prop_assert_eq!(world.brought, world.paid + world.told);
    }
}

#[test]
fn a_browser_keeps_its_name_from_the_answer_to_the_last_release() {
    let now = Instant::now();
    let (lease, actions) = L::Asking.step(granted("one"), now);
    let A::Entrust(entrusted) = &actions[0] else {
        panic!("not entrusted: {actions:?}");
    };
    assert_eq!(id_of(entrusted), "one");

    let (_, actions) = lease.step(E::ConnectionLost, now);

    let [A::Release { capability, .. }] = &actions[..] else {
        panic!("not released: {actions:?}");
    };
    assert_eq!(id_of(capability), "one");
}
