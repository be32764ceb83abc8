//! The allocator: every layout, many threads and stacks, little memory, forks; over the system's and over others
//! (features of test-support).

mod collector;
mod hostile_fork;
mod hostile_limit;
mod hostile_stacks;
mod hostile_threads;
mod layouts;
mod workspace;
