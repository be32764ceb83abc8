//! Files that are missing, change while they are read, or do not answer.

mod replaced;
#[cfg(target_env = "gnu")]
mod stalled;
