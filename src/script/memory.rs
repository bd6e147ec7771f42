//! Counting what a script allocates, so that it is ended before it fills the machine.
//!
//! [`Counting`] wraps any allocator and counts on a thread only while a [`Meter`] is running there:
//! an idle thread pays one thread-local read per allocation. The count is what was asked for plus an
//! allowance for the allocator's own header, so that millions of tiny values are not nearly free.
//!
//! It never refuses an allocation: a script is ended between two operations, by `engine`, and natives
//! that multiply a size ask [`has_room`] first. What one thread allocates and another frees must stay
//! outside the count: see [`uncounted`] and [`Uncounted`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::mem::ManuallyDrop;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// What an allocator spends on a block beside its bytes, about.
const HEADER: isize = 16;

/// The largest count a script may reach.
pub const SCRIPT_LIMIT: usize = 512 << 20;

struct Gauge {
    running: Cell<bool>,
    used: Cell<isize>,
    limit: Cell<isize>,
}

thread_local! {
    // `const` and without `Drop`: reading it never allocates, also while a thread ends.
    static GAUGE: Gauge = const {
        Gauge { running: Cell::new(false), used: Cell::new(0), limit: Cell::new(isize::MAX) }
    };
}

/// An allocator that counts what the current script's thread asks of the one below.
pub struct Counting<A>(pub A);

// SAFETY: every call is passed on unchanged; counting touches only plain thread-local cells.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize + HEADER);
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize + HEADER);
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize + HEADER));
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}

#[inline]
fn count(bytes: isize) {
    GAUGE.with(|gauge| {
        if gauge.running.get() {
            gauge.used.set(gauge.used.get() + bytes);
        }
    });
}

/// Counts on this thread while it lives.
pub struct Meter(());

impl Meter {
    /// Starts at zero; [`is_over`] is true beyond `limit` bytes.
    pub fn start(limit: usize) -> Self {
        GAUGE.with(|gauge| {
            gauge.used.set(0);
            gauge.limit.set(isize::try_from(limit).unwrap_or(isize::MAX));
            gauge.running.set(true);
        });
        Self(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        GAUGE.with(|gauge| {
            gauge.running.set(false);
            gauge.used.set(0);
            gauge.limit.set(isize::MAX);
        });
    }
}

/// Whether the script of this thread holds more than it may.
#[inline]
pub fn is_over() -> bool {
    GAUGE.with(|gauge| gauge.used.get() > gauge.limit.get())
}

/// Whether the script of this thread may allocate `bytes` more.
pub fn has_room(bytes: usize) -> bool {
    GAUGE.with(|gauge| {
        let left = gauge.limit.get().saturating_sub(gauge.used.get());
        usize::try_from(left).is_ok_and(|left| bytes <= left)
    })
}

/// What the script of this thread holds now, in bytes.
pub fn used() -> usize {
    GAUGE.with(|gauge| usize::try_from(gauge.used.get()).unwrap_or(0))
}

/// Runs `work` without counting: for what is shared with other threads.
pub fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let _pause = Pause::start();
    work()
}

/// Counts `work` on its own, from zero up to `limit` bytes: for what outlives the script of this thread.
pub fn apart<T>(limit: usize, work: impl FnOnce() -> T) -> T {
    let _before = Before::start(limit);
    work()
}

/// The count as it was, to go on with.
struct Before {
    running: bool,
    used: isize,
    limit: isize,
}

impl Before {
    fn start(limit: usize) -> Self {
        let limit = isize::try_from(limit).unwrap_or(isize::MAX);
        GAUGE.with(|gauge| Self {
            running: gauge.running.replace(true),
            used: gauge.used.replace(0),
            limit: gauge.limit.replace(limit),
        })
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        GAUGE.with(|gauge| {
            gauge.running.set(self.running);
            gauge.used.set(self.used);
            gauge.limit.set(self.limit);
        });
    }
}

/// A value from [`uncounted`] work, which is not counted when it is dropped either.
pub struct Uncounted<T>(ManuallyDrop<T>);

impl<T> Uncounted<T> {
    /// Makes the value, uncounted.
    pub fn new(make: impl FnOnce() -> T) -> Self {
        Self(ManuallyDrop::new(uncounted(make)))
    }
}

impl<T> std::ops::Deref for Uncounted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Uncounted<T> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here; nothing takes the value out before.
        uncounted(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

struct Pause {
    resume: bool,
}

impl Pause {
    fn start() -> Self {
        Self { resume: GAUGE.with(|gauge| gauge.running.replace(false)) }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        GAUGE.with(|gauge| gauge.running.set(self.resume));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_again_is_not_held() {
        let _meter = Meter::start(1 << 20);
        let kept = vec![0_u8; 1000];
        drop(vec![0_u8; 100_000]);

        assert!((1000..2000).contains(&used()), "{}", used());
        assert!(has_room(1 << 19) && !has_room(1 << 20));
        drop(kept);
        assert_eq!(used(), 0);
    }

    #[test]
    fn a_growing_vector_is_counted_at_its_last_size() {
        let _meter = Meter::start(1 << 20);
        let mut grown = Vec::new();
        (0..3 << 19).for_each(|n: u32| grown.push(n as u8));

        assert!(is_over());
    }

    #[test]
    fn shared_work_leaves_the_count_alone_in_both_directions() {
        let _meter = Meter::start(1 << 20);
        let answer = Uncounted::new(|| vec![0_u8; 2 << 20]);

        assert_eq!((answer.len(), used()), (2 << 20, 0));
        drop(answer);
        assert_eq!(used(), 0);
    }

    #[test]
    fn work_counted_apart_has_its_own_limit_and_leaves_the_count_as_it_was() {
        let _meter = Meter::start(1 << 10);
        let kept = apart(1 << 20, || {
            let kept = vec![0_u8; 1 << 19];
            assert!(!is_over() && !has_room(1 << 19));
            kept
        });

        assert_eq!((kept.len(), used()), (1 << 19, 0));
        uncounted(|| drop(kept));
    }

    #[test]
    fn a_thread_without_a_meter_is_never_over() {
        let _held = vec![0_u8; 1 << 20];

        assert!(!is_over() && has_room(usize::MAX >> 1));
    }
}
