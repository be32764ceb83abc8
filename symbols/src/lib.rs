//! From addresses to functions, files and lines, and which of them a reader wants to see. For the exporters of rtprof.
//!
//! | module | what it answers |
//! |---|---|
//! | `owners` | which module an address belonged to when it was captured |
//! | [`symbolizer`], [`symbol_cache`], `search` | what is known of an address, and how the rest is looked up without holding up the program |
//! | `file_symbols`, [`object_file`] | what a file says of its addresses |
//! | `names`, `source_path` | names as a reader wants them |
//! | [`prune`], [`hook_names`], [`startup`], `wakes` | which functions are machinery: of allocators, of hooks, of std's start-up |
//! | [`locations`], [`frames`] | the stacks of one export, resolved, and what is shown of each |
//!
//! Debug information is opened for an export and dropped with it; answers are remembered, so that later exports open
//! nothing. Files are read and never mapped, so a file that is cut or rewritten meanwhile costs names and does not end the
//! program; names of a file that was written to while it was read are not used.

#![forbid(unsafe_code)]

mod file_symbols;
pub mod frames;
pub mod function_names;
pub mod hash;
pub mod hook_names;
pub mod locations;
mod names;
pub mod object_file;
mod owners;
mod progress;
pub mod prune;
mod search;
mod source_path;
pub mod startup;
pub mod symbol_cache;
pub mod symbolizer;
pub mod view;
mod wakes;
