//! Counting what a script allocates, so that it is ended before it fills the machine.
//!
//! [`Counting`] wraps any allocator and counts on a thread only while a [`Meter`] is running there:
//! an idle thread pays one thread-local read per allocation. The count is what was asked for plus an
//! allowance for the allocator's own header, so that millions of tiny values are not nearly free.
//!
//! It never refuses an allocation: a script is ended between two operations, by `engine`, and natives
//! that multiply a size ask [`has_room`] first. What one thread allocates and another frees must stay
//! outside the count: see [`uncounted`] and [`Uncounted`]. The threads of one script have one count, a [`Pool`]: a
//! thread counts by itself and adds to it in portions.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// What an allocator spends on a block beside its bytes, about.
const HEADER: isize = 16;

/// The largest count a script may reach.
pub const SCRIPT_LIMIT: usize = 512 << 20;

/// What a thread counts by itself before it adds it to its pool.
const PORTION: isize = 64 << 10;

struct Gauge {
    running: Cell<bool>,
    used: Cell<isize>,
    limit: Cell<isize>,
    /// The count that this thread shares, or null. It lives as long as the thread's [`Meter`].
    pool: Cell<*const Pool>,
    /// What the pool holds for an allocation that was announced and has not been made.
    claimed: Cell<isize>,
}

/// The one count of several threads.
#[derive(Debug)]
pub struct Pool {
    used: AtomicIsize,
    limit: isize,
}

thread_local! {
    // `const` and without `Drop`: reading it never allocates, also while a thread ends.
    static GAUGE: Gauge = const {
        Gauge {
            running: Cell::new(false),
            used: Cell::new(0),
            limit: Cell::new(isize::MAX),
            pool: Cell::new(ptr::null()),
            claimed: Cell::new(0),
        }
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
            if !gauge.pool.get().is_null() && gauge.used.get().abs() > PORTION {
                gauge.hand_over();
            }
        }
    });
}

impl Gauge {
    fn pool(&self) -> Option<&Pool> {
        // SAFETY: null, or from the meter of this thread, which keeps the pool and takes the pointer back when it ends.
        unsafe { self.pool.get().as_ref() }
    }

    /// What the script holds, on all its threads.
    fn held(&self) -> isize {
        self.used.get() + self.pool().map_or(0, |pool| pool.used.load(Ordering::Relaxed))
    }

    /// Adds what this thread counted to the pool, as far as it was not announced there.
    fn hand_over(&self) {
        let Some(pool) = self.pool() else { return };
        let used = self.used.replace(0);
        let announced = used.clamp(0, self.claimed.get());
        self.claimed.set(self.claimed.get() - announced);
        pool.used.fetch_add(used - announced, Ordering::Relaxed);
    }

    /// Announces an allocation, so that two threads do not both take the last room. False when it does not fit.
    fn claim(&self, bytes: isize) -> bool {
        let Some(pool) = self.pool() else { return true };
        let before = pool.used.fetch_add(bytes, Ordering::Relaxed);
        self.claimed.set(bytes);
        let fits = bytes <= self.limit.get().saturating_sub(before).saturating_sub(self.used.get());
        if !fits {
            self.disclaim();
        }
        fits
    }

    /// Takes back what was announced and not allocated.
    fn disclaim(&self) {
        let claimed = self.claimed.replace(0);
        if let Some(pool) = self.pool().filter(|_| claimed != 0) {
            pool.used.fetch_sub(claimed, Ordering::Relaxed);
        }
    }
}

/// Counts on this thread while it lives.
pub struct Meter {
    _pool: Option<Arc<Pool>>,
    /// It belongs to the thread that started it.
    _here: PhantomData<*const ()>,
}

impl Meter {
    /// Starts at zero; [`is_over`] is true beyond `limit` bytes.
    pub fn start(limit: usize) -> Self {
        Self::begin(None, isize::try_from(limit).unwrap_or(isize::MAX))
    }

    /// Starts at what was held when an earlier meter ended.
    pub fn resume(held: usize, limit: usize) -> Self {
        let meter = Self::start(limit);
        GAUGE.with(|gauge| gauge.used.set(isize::try_from(held).unwrap_or(isize::MAX)));
        meter
    }

    /// Counts to a pool; [`is_over`] is true beyond the pool's limit, or beyond `limit` bytes in all of it.
    pub fn join(pool: Arc<Pool>, limit: usize) -> Self {
        let limit = isize::try_from(limit).unwrap_or(isize::MAX).min(pool.limit);
        Self::begin(Some(pool), limit)
    }

    fn begin(pool: Option<Arc<Pool>>, limit: isize) -> Self {
        GAUGE.with(|gauge| {
            gauge.used.set(0);
            gauge.claimed.set(0);
            gauge.limit.set(limit);
            gauge.pool.set(pool.as_ref().map_or(ptr::null(), Arc::as_ptr));
            gauge.running.set(true);
        });
        Self { _pool: pool, _here: PhantomData }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        GAUGE.with(|gauge| {
            gauge.running.set(false);
            gauge.disclaim();
            gauge.hand_over();
            gauge.pool.set(ptr::null());
            gauge.used.set(0);
            gauge.limit.set(isize::MAX);
        });
    }
}

/// This thread's count, lent to others; it takes them into its own when this is dropped.
pub struct Sharing {
    pool: Arc<Pool>,
    before: isize,
    _here: PhantomData<*const ()>,
}

impl Sharing {
    /// Starts at what the script of this thread holds, with its limit. The thread itself goes on counting apart.
    pub fn start() -> Self {
        let (before, limit) = GAUGE.with(|gauge| (gauge.held(), gauge.limit.get()));
        let pool = uncounted(|| Arc::new(Pool { used: AtomicIsize::new(before), limit }));
        Self { pool, before, _here: PhantomData }
    }

    /// What the others [`Meter::join`].
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        let added = self.pool.used.load(Ordering::Relaxed) - self.before;
        GAUGE.with(|gauge| gauge.used.set(gauge.used.get() + added));
    }
}

/// Whether the script of this thread holds more than it may.
#[inline]
pub fn is_over() -> bool {
    GAUGE.with(|gauge| {
        if gauge.claimed.get() != 0 {
            gauge.disclaim();
        }
        gauge.held() > gauge.limit.get()
    })
}

/// Whether the script of this thread may allocate `bytes` more.
pub fn has_room(bytes: usize) -> bool {
    let bytes = isize::try_from(bytes).unwrap_or(isize::MAX);
    GAUGE.with(|gauge| {
        gauge.disclaim();
        bytes <= gauge.limit.get().saturating_sub(gauge.held()) && (bytes < PORTION || gauge.claim(bytes))
    })
}

/// What the script of this thread holds now, in bytes.
pub fn used() -> usize {
    GAUGE.with(|gauge| usize::try_from(gauge.held()).unwrap_or(0))
}

/// Lets the allocator find what this thread has freed. glibc looks for it only when a block like this one is freed,
/// and a script's values are small: without it the largest script of a thread's arena stays resident.
pub fn settle() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(128 << 10)));
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
    pool: *const Pool,
    claimed: isize,
}

impl Before {
    fn start(limit: usize) -> Self {
        let limit = isize::try_from(limit).unwrap_or(isize::MAX);
        GAUGE.with(|gauge| Self {
            running: gauge.running.replace(true),
            used: gauge.used.replace(0),
            limit: gauge.limit.replace(limit),
            pool: gauge.pool.replace(ptr::null()),
            claimed: gauge.claimed.replace(0),
        })
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        GAUGE.with(|gauge| {
            gauge.running.set(self.running);
            gauge.used.set(self.used);
            gauge.limit.set(self.limit);
            gauge.pool.set(self.pool);
            gauge.claimed.set(self.claimed);
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
    use std::thread;

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

    /// Runs `work` on a thread that counts to `pool`.
    fn beside<T: Send>(pool: &Arc<Pool>, limit: usize, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|threads| {
            let counted = || {
                let _meter = Meter::join(pool.clone(), limit);
                work()
            };
            threads.spawn(counted).join().unwrap()
        })
    }

    #[test]
    fn threads_that_share_a_count_have_one_limit() {
        let _meter = Meter::start(8 << 20);
        let mine = vec![0_u8; 3 << 20];
        let sharing = Sharing::start();
        let three = || (vec![0_u8; 3 << 20], is_over());

        let (kept, over) = beside(sharing.pool(), usize::MAX, three);
        assert!(!over, "six of eight");
        assert!(beside(sharing.pool(), usize::MAX, || three().1), "nine of eight");
        assert!(!beside(sharing.pool(), usize::MAX, is_over), "six of eight again");
        assert!(beside(sharing.pool(), 1 << 20, is_over), "a thread may have a lower limit");
        drop(sharing);

        assert!(((6 << 20)..(6 << 20) + 8000).contains(&used()), "{}", used());
        drop((mine, kept));
        assert!(used() < 8000, "{}", used());
    }

    #[test]
    fn the_last_room_is_given_to_one_thread() {
        let _meter = Meter::start(8 << 20);
        let sharing = Sharing::start();
        let pool = sharing.pool();

        beside(pool, usize::MAX, || {
            assert!(has_room(6 << 20) && has_room(6 << 20), "the next announcement takes the place of the last");
            assert!(!beside(pool, usize::MAX, || has_room(6 << 20)));
            let _held = vec![0_u8; 6 << 20];
            assert!(((6 << 20)..(6 << 20) + (1 << 17)).contains(&used()), "no second count: {}", used());
        });
        assert!(beside(pool, usize::MAX, || has_room(6 << 20)));
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
