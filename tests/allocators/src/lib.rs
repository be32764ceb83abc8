//! Empty: the tests of this package are those of the folder above, over another allocator.
