#!/usr/bin/env bash
# Stacks in kinds of build that users have (tests/builds.rs): with line tables only, without debug information, and
# stripped, walked by unwind tables. And waits of unmodified code, however the C library is linked (tests/link_matrix.rs).
# All kinds, both ways, take minutes: `all`, as in ci/long.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

kinds=(by_unwind_tables::{line_tables_only,release_without_debug_information,split_debug_information,stripped})
links=(debug loaded_by_another_program gnu_ld_stripped musl_fat_lto)
[[ "${1:-}" != all ]] || kinds=() links=()
cargo test --test builds -- --ignored --test-threads=1 ${kinds[@]+"${kinds[@]}"}
cargo test --test link_matrix -- --ignored --test-threads=1 ${links[@]+"${links[@]}"}
