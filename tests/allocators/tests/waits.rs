//! Stacks of waits: the tests of tests/waits that check them.

#[path = "../../waits/channels_stacks.rs"]
mod channels_stacks;
#[path = "../../waits/events.rs"]
mod events;
#[path = "../../support/mod.rs"]
mod support;
#[path = "../../waits/threads.rs"]
mod threads;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<support::inner::Inner> = rtprof::ProfAlloc::new(support::inner::INNER);
