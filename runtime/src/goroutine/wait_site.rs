//! The sites of waits that other threads may end: the innermost frames of each wait.
//!
//! Problem: a wake at the kernel's futex may be an unlock or another operation. The functions of the waker show which,
//! unless tail calls have left no frame of them. Scheme: the waiting thread is in functions that have not returned. It
//! notes its site, and the wake that ends the wait records that site. The function names show later which operation it
//! was.
//!
//! # Locks
//!
//! None: see [`crate::stack::table`].

use crate::hook::errno;
use crate::stack::kept::{Frames, KeptStack, NotedStack};
use crate::stack::scratch::with_frames;
use crate::stack::table::Table;
use crate::stack::{capture, with_room};

/// The number of frames stored per site: those of the profiler, the system call, and the lock itself.
const FRAMES: usize = 16;
/// The number of sites that are stored.
const MAX_SITES: usize = 1 << 12;

/// A site at which threads wait.
pub type WaitSite = KeptStack;

/// A reference to a site, or none.
pub type NotedSite = NotedStack;

lazy_under_loom! {
    static SITES: Table<Frames, ()> = Table::new(MAX_SITES);
}

pub(crate) fn open() {
    SITES.open();
}

/// Returns the site at which the caller is about to wait. Returns `None` when there is no room for another site. Safe to
/// call in a hook.
#[inline]
pub fn here() -> Option<&'static WaitSite> {
    // The kernel may refuse memory for another site.
    errno::kept(|| with_room(|| find(&SITES)).flatten())
}

#[inline(never)]
fn find(sites: &'static Table<Frames, ()>) -> Option<&'static WaitSite> {
    with_frames(|frames| {
        let depth = capture(frames).min(FRAMES);
        sites.intern(Frames, &frames[..depth]).ok()
    })
}
