//! A fast hash for addresses.
//!
//! An export looks up a few hundred thousand return addresses; the standard hasher would take longer than everything
//! else. The keys are addresses of this process, so no attacker can choose them to collide.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxBuildHasher, FxHasher};

/// A map whose keys are addresses of this process.
pub type AddressMap<K, V> = HashMap<K, V, FxBuildHasher>;

/// Returns a hash of a stack, the same for the same addresses.
pub fn stack_hash(stack: &[usize]) -> u64 {
    let mut hasher = FxHasher::default();
    stack.hash(&mut hasher);
    hasher.finish()
}
