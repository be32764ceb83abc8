//! allocator
