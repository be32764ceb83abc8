//! Async tasks: all tests of tests/tasks that need no feature.

#[path = "../../tasks/block.rs"]
mod block;
#[path = "../../tasks/branches.rs"]
mod branches;
#[path = "../../tasks/by_hand.rs"]
mod by_hand;
#[path = "../../tasks/churn.rs"]
mod churn;
#[path = "../../tasks/dump.rs"]
mod dump;
#[path = "../../tasks/labels.rs"]
mod labels;
#[path = "../../tasks/leaked.rs"]
mod leaked;
#[path = "../../tasks/leaves.rs"]
mod leaves;
#[path = "../../tasks/misuse.rs"]
mod misuse;
#[path = "../../tasks/nested.rs"]
mod nested;
#[path = "../../tasks/states.rs"]
mod states;
#[path = "../../support/mod.rs"]
mod support;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<support::inner::Inner> = rtprof::ProfAlloc::new(support::inner::INNER);
