//! Traces: their contents, their writers, and Go's tools reading them.

mod asleep;
mod collector;
mod events;
mod flight;
mod interop;
mod labels;
mod many_threads;
mod misuse;
mod perfetto;
mod samples;
mod sessions;
mod skew;
mod task_windows;
mod truth;
mod window_files;
mod writers;
