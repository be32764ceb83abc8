//! The comments of a profile to its reader, besides its samples.

use rtprof_runtime::counters::{self, CountedProfile};
use rtprof_runtime::thread::thread_create;

use crate::contention::{self, Raised};
use crate::{mem, rate};

/// Returns the comments of this profile: a sentence for every count that is not zero and concerns it, the rates that are in
/// force if they are not those that were set, and the likely reason if the profile is empty.
pub fn of(profile: CountedProfile) -> Vec<String> {
    let mut sentences = counters::sentences(profile);
    let raised = raised_rate(profile);
    let reason = why_empty(profile).map(str::to_owned);
    sentences.extend(raised.into_iter().chain(reason).map(|sentence| format!("rtprof: {sentence}")));
    sentences
}

/// Describes the rate of the profile, if the budget has raised it.
fn raised_rate(profile: CountedProfile) -> Option<String> {
    let percent = contention::profile_budget()?;
    let [block, mutex] = contention::raised_rates();
    match profile {
        CountedProfile::Block => block.map(|Raised { now, most }| {
            let set = contention::block_profile_rate();
            format!(
                "waits are too frequent for a sample in {set} ns within the budget of {percent} % of the processor time: it \
                 is one in {now} ns now, and was one in {most} ns at most; each sample has the weight of its rate"
            )
        }),
        CountedProfile::Mutex => mutex.map(|Raised { now, most }| {
            let set = contention::set_mutex_profile_fraction(-1);
            format!(
                "contended unlocks are too frequent for one sample in {set} within the budget of {percent} % of the processor \
                 time: it is one in {now} now, and was one in {most} at most; each sample has the weight of its fraction"
            )
        }),
        _ => None,
    }
}

fn why_empty(profile: CountedProfile) -> Option<&'static str> {
    let (is_empty, reason) = match profile {
        CountedProfile::Heap => (
            rate::mem_profile_rate() != 0 && mem::stacks_in_use().0 == 0,
            "no allocation was sampled yet; if the program has allocated more than a few MiB, check that a \
             ProfAlloc is its #[global_allocator]",
        ),
        CountedProfile::Block => (
            contention::block_profile_rate() == 0 && contention::block_counts().is_empty(),
            "the block profile is off; set_block_profile_rate switches it on",
        ),
        CountedProfile::Mutex => (
            contention::set_mutex_profile_fraction(-1) == 0 && contention::mutex_counts().is_empty(),
            "the mutex profile is off; set_mutex_profile_fraction switches it on",
        ),
        CountedProfile::ThreadCreate => (
            thread_create::thread_counts().is_empty(),
            "no thread was created by rtprof::thread yet; others are not known",
        ),
        CountedProfile::Goroutine | CountedProfile::Cpu => (false, ""),
    };
    is_empty.then_some(reason)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use CountedProfile::{Block, Goroutine, Heap, Mutex, ThreadCreate};

    #[test]
    fn a_profile_tells_of_what_concerns_it() {
        rate::APPROXIMATED.add();
        contention::OVER_LIMIT.add();
        thread_create::OVER_LIMIT.add();
        let tells = |profile, words: &str| of(profile).iter().any(|comment| comment.contains(words));
        for (words, subjects) in [
            ("distinct rates", &[Heap][..]),
            ("block and mutex profiles keep each", &[Block, Mutex]),
            ("threadcreate profile keeps", &[ThreadCreate]),
        ] {
            for profile in [Heap, Block, Mutex, ThreadCreate, Goroutine] {
                assert_eq!(tells(profile, words), subjects.contains(&profile), "{words}: {profile:?}");
            }
        }
    }
}
