//! The work of answers, on rtprof's own threads: permits, the engine that starts request threads, the writer of an answer, the
//! budget of their processor time, and the search for names that they wait for.

pub(crate) mod budget;
pub(crate) mod engine;
pub(crate) mod name_search;
pub(crate) mod permits;
pub(crate) mod request_threads;
pub(crate) mod response_writer;
