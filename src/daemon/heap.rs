//! Giving back what scripts and large replies have left free in the allocator.
//!
//! glibc keeps what threads that have ended held in pieces: a daemon that lives for hours would stay as large as its
//! greediest script. Other allocators give back by themselves.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Growth that is worth a walk through the heap, in bytes.
const WORTH_A_WALK: usize = 8 << 20;

/// How many use the heap in earnest: what is resident tells something only while there is nobody.
static USERS: AtomicUsize = AtomicUsize::new(0);

/// What was resident after the last walk, with no users.
static SETTLED: AtomicUsize = AtomicUsize::new(0);

/// A script's time. When the last of them is over, free memory is given back where the process has grown.
pub(super) struct HeapUse(());

impl HeapUse {
    pub(super) fn begin() -> Self {
        USERS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for HeapUse {
    fn drop(&mut self) {
        let is_last = USERS.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && resident() > SETTLED.load(Ordering::SeqCst) + WORTH_A_WALK {
            trim();
            let resident = resident();
            if USERS.load(Ordering::SeqCst) == 0 {
                SETTLED.store(resident, Ordering::SeqCst);
            }
        }
    }
}

/// The process's memory in bytes; nothing where that cannot be told.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    // SAFETY: asks for a constant.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * usize::try_from(size).unwrap_or(4096)
}

/// Sets how much free memory each of the allocator's pieces may keep. Left alone, glibc raises that to 64 MiB each as
/// soon as a large block has been freed, and [`trim`] does not reach it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn keep_little() {
    // SAFETY: sets numbers of the allocator. One that it refuses stays as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn keep_little() {}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: touches only what is free.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}
