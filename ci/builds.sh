#!/usr/bin/env bash
# Stacks in kinds of build that users have (tests/builds.rs): with line tables only, without debug information, and
# stripped, walked by unwind tables. All kinds, both ways, take minutes: `all`, as in ci/long.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

kinds=(by_unwind_tables::{line_tables_only,release_without_debug_information,split_debug_information,stripped})
[[ "${1:-}" != all ]] || kinds=()
cargo test --test builds -- --ignored --test-threads=1 ${kinds[@]+"${kinds[@]}"}
