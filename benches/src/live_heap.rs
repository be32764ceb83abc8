//! A large heap of small objects that stays alive, and the resident memory of the process.

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::hint::black_box;
use std::io;
use std::ptr::{self, NonNull};

use crate::descent::on_distinct_stacks;
use crate::sizes::Draw;

/// The number of different stacks that allocate the heap. The number of records grows with the stacks times the sizes,
/// so a single call site would flatter a profiler.
const STACKS: usize = 1024;

/// Levels of recursion under each allocation.
const DEPTH: usize = 20;

/// Allocates objects of 64 to 512 bytes until `bytes` are reached and leaves them all alive. Returns the sum of their
/// sizes.
///
/// The objects hold only a link to the previous object, so that no list adds to the heap's size.
pub fn grow(bytes: usize) -> usize {
    let mut draw = Draw::new(0x11fe);
    let mut last: *mut u8 = ptr::null_mut();
    let mut sum = 0;
    let share = bytes / STACKS;
    let mut goal = 0;
    on_distinct_stacks(STACKS, DEPTH, &mut || {
        goal += share;
        while sum < goal {
            let size = draw.log_uniform(64, 512);
            last = linked(last, size);
            sum += size;
        }
    });
    black_box(last);
    sum
}

/// Allocates one object and touches all its pages: the link comes first, then zeroes.
fn linked(before: *mut u8, size: usize) -> *mut u8 {
    let layout = Layout::from_size_align(size, 8).expect("sizes are far below isize::MAX");
    // SAFETY: sizes are at least 64, so the layout is not zero-sized.
    let Some(object) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
    // SAFETY: the object has `size` bytes, more than one pointer, and is aligned for it.
    unsafe {
        object.write_bytes(0, size);
        object.cast::<*mut u8>().write(before);
    }
    black_box(object.as_ptr())
}

/// Returns the resident bytes of this process.
///
/// Reads `smaps_rollup`, which walks the page tables: the counters in `statm` lag by some hundred KiB.
///
/// # Errors
/// When procfs is absent or has another format.
pub fn resident() -> io::Result<usize> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    text.lines()
        .find_map(|line| line.strip_prefix("Rss:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<usize>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other("no Rss line in /proc/self/smaps_rollup"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_weighs_what_was_asked_for() {
        // Other tests of this process may free something at the same time, but not as much each time.
        let is_heavy_enough = || {
            let before = resident().unwrap();
            let bytes = grow(16 << 20);
            let grown = resident().unwrap().saturating_sub(before);
            assert!(bytes >= 16 << 20);
            println!("{bytes} bytes alive, resident grew by {grown}");
            grown >= bytes
        };
        assert!((0..5).any(|_| is_heavy_enough()));
    }
}
