//! Where threads wait that others may wake: the innermost frames of each such wait.
//!
//! Problem: a wake at the kernel's futex may be an unlock or something else, which the functions of the waker tell, unless they have
//! jumped to one another and left no frame. Scheme: the thread that waits is in functions that have not returned. It notes where it
//! waits, and the wake that ends the wait takes that along. Names tell later what it was.
//!
//! # Locks
//!
//! None: see [`crate::stack::table`].

use crate::listeners::{self, Listener};
use crate::stack::kept::{Frames, KeptStack, NotedStack};
use crate::stack::scratch::with_frames;
use crate::stack::table::Table;
use crate::stack::{capture, with_room};

/// The frames that are kept: those of the profiler, the system call, and the lock's own.
const FRAMES: usize = 16;
/// Places that are kept.
const MAX_SITES: usize = 1 << 12;

/// A place where threads wait.
pub type WaitSite = KeptStack;

/// A note of a place, or of none.
pub type NotedSite = NotedStack;

lazy_under_loom! {
    static SITES: Table<Frames, ()> = Table::new(MAX_SITES);
}

pub(crate) fn open() {
    SITES.open();
}

/// The place at which the caller is about to wait. `None` while the mutex profile is off, and when there is no room for another
/// place. For hooks.
#[inline]
pub fn here() -> Option<&'static WaitSite> {
    if listeners::listens(Listener::Mutex) { with_room(|| find(&SITES)).flatten() } else { None }
}

#[inline(never)]
fn find(sites: &'static Table<Frames, ()>) -> Option<&'static WaitSite> {
    with_frames(|frames| {
        let depth = capture(frames).min(FRAMES);
        sites.intern(Frames, &frames[..depth]).ok()
    })
}
