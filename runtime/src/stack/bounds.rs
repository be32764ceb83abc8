//! The bounds of the current thread's stack, so that a stack walk never reads beyond its end, and the room left on it,
//! so that a hook never overflows it.
//!
//! Problem: a walk without bounds faults as soon as a frame pointer holds another value, and in code without frame
//! pointers it does. A hook without a check turns the last kilobytes of a stack, which would have been enough for the
//! program, into a crash.
//!
//! Scheme: there are three kinds of stacks.
//!
//! - A *thread's own* stack stays mapped at its place until the thread ends. The kernel is asked for its mapping once
//!   per thread: by the `PROCMAP_QUERY` of Linux 6.11 where it exists (2 µs), else by reading /proc/thread-self/maps
//!   line by line (0.1 ms). (`pthread_getattr_np` knows it too, but allocates.) The mapping may begin below the stack:
//!   a guard page made by `MADV_GUARD_INSTALL`, as glibc does since 2.42, does not divide it from the stack of another
//!   thread. So the pages of the stack are checked one by one, from the top down, each when it is needed for the first
//!   time.
//! - The *main thread's* stack grows on demand, until its limit or another mapping stops it: only the kernel knows, and
//!   is asked by [`kernel::is_readable`], which makes the stack grow.
//! - A *foreign* stack, which the program switched to by itself (a coroutine's, a signal handler's alternate stack),
//!   may be unmapped at any time and its addresses reused for a smaller one. Nothing about it can be cached. A walk
//!   begins in the page of the stack pointer, which is mapped if the walk begins on that stack, and checks each further
//!   page when it reaches it, 0.1 to 0.2 µs each.
//!
//! Without /proc every stack is treated as foreign.

use core::cell::Cell;

use super::kernel::{self, PAGE};

/// Addresses that belong to a stack: `low..high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The lowest address known to be mapped.
    pub(super) low: usize,
    /// One past the highest address that may be read.
    pub(super) high: usize,
    /// Whether the stack is foreign: the pages above `high` and below `low` may belong to it as well.
    pub(super) is_foreign: bool,
}

/// The maximum distance that one step of a walk may skip on a foreign stack: a frame of this size. A larger one is more
/// likely a frame pointer register with another value, and each page would need a system call.
const LARGEST_STEP: usize = 256 << 10;
/// The maximum distance below its known end at which the main thread's stack is expected. Stacks of coroutines are
/// further away: the kernel keeps at least this much free below the main stack.
const LARGEST_GROWTH: usize = 128 << 20;

impl Bounds {
    /// No stack.
    pub(super) const NONE: Self = Self { low: 0, high: 0, is_foreign: false };
    /// A thread's own stack whose bounds the kernel does not reveal.
    const UNKNOWN: Self = Self { low: 1, high: 1, is_foreign: false };

    /// Makes the bounds of a thread's own stack.
    pub(super) const fn new(low: usize, high: usize) -> Self {
        Self { low, high, is_foreign: false }
    }

    /// Makes the bounds of a foreign stack: the page that `sp` points into, which is readable.
    pub(super) fn foreign(sp: usize) -> Self {
        let low = sp & !(PAGE - 1);
        Self { low, high: low.saturating_add(PAGE), is_foreign: true }
    }

    /// Returns whether `address` lies inside.
    #[inline]
    pub(super) fn contains(self, address: usize) -> bool {
        self.low <= address && address < self.high
    }

    /// Returns the bounds with `high` at least `end`, if this is a foreign stack that continues to there. By value:
    /// what a walk reads in each step stays in registers.
    #[cold]
    pub(super) fn extended_to(mut self, end: usize) -> Option<Self> {
        if !self.is_foreign || end.saturating_sub(self.high) > LARGEST_STEP {
            return None;
        }
        while self.high < end {
            if !kernel::is_readable(self.high) {
                return None;
            }
            self.high += PAGE;
        }
        Some(self)
    }

    /// Returns whether `need` bytes below `sp`, which lies inside, may be used.
    #[inline]
    pub(super) fn has_room(self, sp: usize, need: usize) -> bool {
        sp.wrapping_sub(self.low) >= need || self.may_be_given_room(sp, need)
    }

    #[cold]
    fn may_be_given_room(self, sp: usize, need: usize) -> bool {
        let Some(lowest) = sp.checked_sub(need) else { return false };
        if self.is_foreign {
            // From the top down, because another stack may lie below this stack's guard page.
            let lowest = lowest & !(PAGE - 1);
            return (lowest..self.low).step_by(PAGE).rev().all(kernel::is_readable);
        }
        if !self.contains(super::outermost::main_stack()) {
            return self.reaching(lowest).is_some();
        }
        if !kernel::is_readable(lowest) {
            return false;
        }
        // The main stack has grown, and never shrinks.
        BOUNDS.with(|cell| cell.set(Self { low: lowest & !(PAGE - 1), ..self }));
        true
    }

    /// Returns the thread's own stack with `low` at most `address`, if it extends down to there.
    #[cold]
    fn reaching(self, address: usize) -> Option<Self> {
        let address = address & !(PAGE - 1);
        let floor = FLOOR.with(Cell::get);
        if address < floor {
            return None;
        }
        let mut low = self.low;
        while low > address && kernel::is_readable(low - PAGE) {
            low -= PAGE;
        }
        let reached = Self { low, ..self };
        // Pages of a thread's own stack stay mapped.
        BOUNDS.with(|cell| cell.set(reached));
        if low > address {
            FLOOR.with(|cell| cell.set(low));
            return None;
        }
        Some(reached)
    }
}

thread_local! {
    // The thread's own stack. No destructor and no lazy initialisation: readable from the first to the last instruction
    // of a thread (rust#116390).
    static BOUNDS: Cell<Bounds> = const { Cell::new(Bounds::NONE) };
    // The stack does not extend below this address.
    static FLOOR: Cell<usize> = const { Cell::new(0) };
}

/// Returns the known bounds of this thread's own stack if `sp` points into it.
#[inline]
pub(super) fn own_stack_at(sp: usize) -> Option<Bounds> {
    let own = BOUNDS.with(Cell::get);
    own.contains(sp).then_some(own)
}

/// Returns the bounds of the stack that the stack pointer `sp` points into.
#[inline]
pub(super) fn of_stack_at(sp: usize) -> Bounds {
    own_stack_at(sp).unwrap_or_else(|| look_up(sp))
}

#[cold]
fn look_up(sp: usize) -> Bounds {
    let known = BOUNDS.with(Cell::get);
    if known == Bounds::NONE || may_have_grown(known, sp) {
        let (own, floor) = own_stack().unwrap_or((Bounds::UNKNOWN, 0));
        FLOOR.with(|cell| cell.set(floor));
        BOUNDS.with(|cell| cell.set(own));
    }
    let own = BOUNDS.with(Cell::get);
    let own = if sp < own.high { own.reaching(sp) } else { None };
    own.unwrap_or_else(|| Bounds::foreign(sp))
}

/// Returns whether `sp` may lie on the main thread's stack, which has grown since its bounds were read.
fn may_have_grown(known: Bounds, sp: usize) -> bool {
    sp < known.low && known.low - sp < LARGEST_GROWTH && known.contains(super::outermost::main_stack())
}

/// Returns the mapped part, as far as it is known, of the stack that the thread was created with, and an address below
/// which the stack does not extend. Returns `None` when the kernel does not reveal it.
fn own_stack() -> Option<(Bounds, usize)> {
    if kernel::is_main_thread() {
        let stack = kernel::mapping_around(super::outermost::main_stack())?;
        return Some((stack, stack.low));
    }
    // glibc puts a thread's control block at the top of its stack. A neighbouring mapping that the kernel merged with
    // the stack is not part of it, and may go away: end at the control block.
    let block = kernel::thread_pointer();
    let floor = kernel::mapping_around(block)?.low;
    Some((Bounds::new(block & !(PAGE - 1), block), floor))
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_local_lies_inside_the_bounds_on_main_and_other_threads() {
        let check = || {
            let local = 0u8;
            let at = &raw const local as usize;
            let bounds = of_stack_at(at);
            assert!(bounds.contains(at), "{bounds:x?} does not hold {at:x}");
            assert!(bounds.high - at < 64 << 20, "{bounds:x?} is no thread's stack");
            let text = kernel::scan_for_test(at).unwrap();
            assert!(text.low <= bounds.low && bounds.high <= text.high, "{text:x?} against {bounds:x?}");
        };
        check();
        std::thread::spawn(check).join().unwrap();
        std::thread::Builder::new().stack_size(64 << 10).spawn(check).unwrap().join().unwrap();
    }

    #[test]
    fn an_address_on_no_mapping_has_no_bounds() {
        assert_eq!(kernel::mapping_around(8), None);
        assert_eq!(kernel::scan_for_test(8), None);
    }

    #[test]
    fn the_text_form_is_parsed_across_lines() {
        let mut line = kernel::Line::default();
        let text = "55d0-55f0 r--p 00000000 fe:00 1234 /bin/a-b\n7ffe00-7fff00 rw-p 0 0:0 0 [stack]\n";
        let found: Vec<_> = text.bytes().filter_map(|b| line.feed(b)).collect();
        assert_eq!(found, [Bounds::new(0x55d0, 0x55f0), Bounds::new(0x7ffe00, 0x7fff00)]);
    }
}
