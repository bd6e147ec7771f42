//! Who reads the socket: leader and followers.
//!
//! Of the threads that wait, one leads: it polls the socket, reads, and deals out what it finds. The others park
//! until their own news comes or the lead is handed to them. When nobody waits, a sentinel thread is armed and
//! leads whenever something arrives. A thread that makes call after call therefore reads its own replies, with no
//! wake-up of another thread in between; arming and disarming costs a system call each.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::sentinel::Sentinel;

/// Where one thread sleeps while another leads.
#[derive(Default)]
pub(super) struct Parker {
    state: Mutex<Parked>,
    woken: Condvar,
}

#[derive(Default)]
struct Parked {
    /// Whether the thread sleeps: waking one that does not costs a system call for nothing.
    asleep: bool,
    notified: bool,
    promoted: bool,
}

impl Parker {
    /// Wakes the thread, now or when it parks next.
    pub(super) fn notify(&self) {
        let mut state = self.state();
        state.notified = true;
        if state.asleep {
            self.woken.notify_one();
        }
    }

    /// Sleeps until notified or `until`. True when the lead was handed to this thread.
    fn park(&self, until: Instant) -> bool {
        let mut state = self.state();
        state.asleep = true;
        while !state.notified && !state.promoted {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.woken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.asleep = false;
        state.notified = false;
        std::mem::take(&mut state.promoted)
    }

    fn promote(&self) {
        self.state().promoted = true;
        self.woken.notify_one();
    }

    fn take_promotion(&self) -> bool {
        std::mem::take(&mut self.state().promoted)
    }

    fn state(&self) -> MutexGuard<'_, Parked> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lead of one connection.
pub(super) struct Lead {
    state: Mutex<State>,
    pub(super) sentinel: Sentinel,
}

struct State {
    led: bool,
    followers: Vec<Arc<Parker>>,
}

impl Lead {
    pub(super) fn new(sentinel: Sentinel) -> Self {
        Self { state: Mutex::new(State { led: false, followers: Vec::new() }), sentinel }
    }

    /// Takes the lead if nobody has it.
    pub(super) fn take(&self) -> bool {
        let mut state = self.state();
        let free = !state.led;
        if free {
            state.led = true;
            self.sentinel.disarm();
        }
        free
    }

    /// Gives the lead up: to a follower, else to the sentinel.
    pub(super) fn leave(&self) {
        self.leave_locked(&mut self.state());
    }

    fn leave_locked(&self, state: &mut State) {
        match state.followers.pop() {
            Some(next) => next.promote(),
            None => {
                state.led = false;
                self.sentinel.arm();
            }
        }
    }

    /// Parks until `until` or until woken, as a follower. True when this thread leads now.
    pub(super) fn follow(&self, parker: &Arc<Parker>, until: Instant) -> bool {
        {
            let mut state = self.state();
            if !state.led {
                state.led = true;
                self.sentinel.disarm();
                return true;
            }
            state.followers.push(parker.clone());
        }
        if parker.park(until) {
            return true;
        }
        let mut state = self.state();
        state.followers.retain(|follower| !Arc::ptr_eq(follower, parker));
        // Handed over between waking up and getting here.
        parker.take_promotion()
    }

    /// Wakes everyone who follows: there is news for all.
    pub(super) fn wake_followers(&self) {
        self.state().followers.iter().for_each(|follower| follower.notify());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
