//! Threads: their numbers and names in the kernel, those of our own, and where the program creates them.

pub mod helper_thread;
pub mod kernel_thread;
pub mod nap;
pub mod thread_create;
