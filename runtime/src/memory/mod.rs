//! Memory and tables that hooks may use.

pub(crate) mod arena;
pub mod atomic_ref;
pub mod mapping;
pub mod slots;
