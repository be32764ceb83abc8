//! The profiles of the process by name.

use std::collections::BTreeMap;

use rtprof_runtime::lock::fork_safe::{ForkMutex, ForkMutexGuard};

use crate::built_in::{BuiltIn, looked_up};
use crate::profile::Profile;

/// All profiles; empty until the first use.
static PROFILES: ForkMutex<BTreeMap<String, Profile>> = ForkMutex::new(BTreeMap::new());

/// Returns all profiles. `None` in a forked child that has lost the list.
pub(crate) fn registry() -> Option<ForkMutexGuard<'static, BTreeMap<String, Profile>>> {
    let mut profiles = PROFILES.lock()?;
    if profiles.is_empty() {
        let built_in = looked_up().filter_map(BuiltIn::profile);
        profiles.extend(built_in.map(|profile| (profile.name().to_owned(), profile)));
    }
    Some(profiles)
}

/// Returns the profile of this name, or `None` if there is none (`pprof.Lookup`).
///
/// The built-in profiles are
/// - `heap`, memory in use, and `allocs`, all memory ever allocated;
/// - `block`, where the program has waited for locks, channels and other threads, and `mutex`, the stacks that made it
///   wait;
/// - `threadcreate`, the stacks that created threads; `goroutine`, where each thread and each async task is; and
///   `goroutineleak`, tasks that appear to wait for ever.
pub fn lookup(name: &str) -> Option<Profile> {
    match registry() {
        Some(profiles) => profiles.get(name).cloned(),
        None => looked_up().find(|profile| profile.name() == name).and_then(BuiltIn::profile),
    }
}

/// Returns all profiles, sorted by name (`pprof.Profiles`).
pub fn profiles() -> Vec<Profile> {
    match registry() {
        Some(profiles) => profiles.values().cloned().collect(),
        None => looked_up().filter_map(BuiltIn::profile).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProfileError;

    #[test]
    fn built_in_profiles_are_there() {
        let names: Vec<String> = profiles().iter().map(|p| p.name().to_owned()).collect();
        assert!(names.is_sorted() && looked_up().is_sorted_by_key(BuiltIn::name));
        for name in ["allocs", "block", "goroutine", "goroutineleak", "heap", "mutex", "threadcreate"] {
            assert!(names.iter().any(|n| n == name), "{names:?}");
            let profile = lookup(name).unwrap();
            assert_eq!(profile.name(), name);
            assert_eq!(Profile::new(name).unwrap_err(), ProfileError::NameTaken(name.into()));
            assert_eq!(profile.add(1, 0).unwrap_err(), ProfileError::BuiltIn(name.into()));
        }
        assert!(lookup("no such profile").is_none());
    }
}
