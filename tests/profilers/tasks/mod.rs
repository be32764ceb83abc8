//! Async tasks in the goroutine profile: what each awaits, and at which line.

mod block;
mod branches;
pub(crate) mod by_hand;
mod churn;
mod dump;
mod executors;
#[cfg(feature = "tokio")]
mod groups;
mod labels;
mod leaked;
mod leaves;
mod misuse;
mod nested;
#[cfg(feature = "tokio")]
mod spawning;
mod states;
