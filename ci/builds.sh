#!/usr/bin/env bash
# Stacks in kinds of build that users have (tests/readers/builds.rs): without debug information, with it apart, and
# stripped, walked by unwind tables. And waits of unmodified code, however the C library is linked
# (tests/readers/link_matrix.rs). All kinds, both ways, take minutes: `all`, as in ci/long.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

kinds=(builds::by_unwind_tables::{release_without_debug_information,split_debug_information,stripped})
links=(link_matrix::{release,loaded_by_another_program,gnu_ld_stripped,musl_fat_lto})
[[ "${1:-}" != all ]] || kinds=(builds::) links=(link_matrix::)
cargo test --test readers -- --ignored --test-threads=1 "${kinds[@]}" "${links[@]}"
