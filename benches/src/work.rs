//! Work that takes a known time and touches no memory.

use std::hint::black_box;
use std::time::Instant;

/// Does `count` multiplications, each of which waits for the previous one: about a nanosecond each.
#[inline(always)]
pub fn steps(value: u64, count: usize) -> u64 {
    (0..count).fold(value | 1, |value, _| opaque(value).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Hides the value from the compiler's analysis. `black_box` would pass it through memory, which is fast or slow
/// depending on the neighbouring code: 1,000 steps took 1.0 µs in one contender's copy of a loop and 1.5 in another's.
#[inline(always)]
fn opaque(mut value: u64) -> u64 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: the assembly has no instruction, only a comment.
    unsafe {
        std::arch::asm!("/* {} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        value = black_box(value);
    }
    value
}

/// Returns how many [`steps`] take so many nanoseconds on this machine at present.
pub fn steps_in(nanos: usize) -> usize {
    const SAMPLE: usize = 1_000_000;
    // The minimum of a few measurements: disturbances only make a step slower.
    let each = (0..5)
        .map(|value| {
            let start = Instant::now();
            black_box(steps(value, SAMPLE));
            start.elapsed().as_nanos() as f64 / SAMPLE as f64
        })
        .fold(f64::INFINITY, f64::min);
    ((nanos as f64 / each) as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_times_the_time_is_about_ten_times_the_steps() {
        let quotient = steps_in(100_000) as f64 / steps_in(10_000) as f64;
        assert!((2.0..50.0).contains(&quotient), "{quotient}");
    }
}
