//! Internal to the crate `rtprof`, whose interface programs use: this one promises no stability.
//!
//! Resolves addresses to functions, files and lines, and decides which of them a reader sees. For the exporters of
//! rtprof.
//!
//! | module | contents |
//! |---|---|
//! | `owners` | which module an address belonged to when it was captured |
//! | [`symbolizer`], [`symbol_cache`], `search` | known symbols, and look-ups that do not delay the program |
//! | `file_symbols`, [`object_file`] | symbols from the file of a module |
//! | `names`, `brackets`, `mangled`, `source_path` | names as a reader wants them |
//! | `program` | what the build of the program leaves out |
//! | [`prune`], [`hook_names`], [`startup`], `wakes` | which functions are machinery: allocators, hooks, start-up |
//! | [`locations`], [`frames`] | the resolved stacks of one export, and the visible part of each |
//!
//! Debug information is opened for an export and dropped with it; results are cached, so that later exports open
//! nothing. Files are read and never mapped, so a file that is truncated or rewritten at the same time costs names but
//! does not end the program; names are discarded if their file was written to while it was read.

#![forbid(unsafe_code)]

mod brackets;
mod file_symbols;
pub mod frames;
pub mod function_names;
pub mod hash;
pub mod hook_names;
pub mod locations;
mod mangled;
mod names;
pub mod object_file;
mod owners;
pub mod path;
mod program;
mod program_code;
mod progress;
pub mod prune;
mod search;
mod source_path;
pub mod startup;
pub mod symbol_cache;
pub mod symbolizer;
pub mod view;
mod wakes;
