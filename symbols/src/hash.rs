//! A fast hash for addresses.
//!
//! An export looks up a few hundred thousand return addresses; the standard hasher would take longer than everything
//! else. The keys are addresses of this process, so no attacker can choose them to collide.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are addresses of this process.
pub type AddressMap<K, V> = HashMap<K, V, BuildHasherDefault<AddressHasher>>;

/// The hasher of an [`AddressMap`].
#[derive(Default)]
pub struct AddressHasher(u64);

/// An odd constant without structure: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        // The table takes its bucket from the low bits and its tag from the high ones; a multiplication leaves the low
        // bits weak.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(MULTIPLIER);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// Returns a hash of a stack, the same for the same addresses.
pub fn stack_hash(stack: &[usize]) -> u64 {
    let mut hasher = AddressHasher(stack.len() as u64);
    for &address in stack {
        hasher.write_usize(address);
    }
    hasher.finish()
}
