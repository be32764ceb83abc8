//! rtprof
