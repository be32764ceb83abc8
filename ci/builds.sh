#!/usr/bin/env bash
# Stacks in kinds of build that users have (tests/builds.rs): without debug information, stripped and with fat LTO. All
# kinds, which take minutes, with `all`, as in ci/long.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

kinds=(release_without_debug_information stripped fat_lto)
[[ "${1:-}" != all ]] || kinds=()
cargo test --test builds -- --ignored --test-threads=1 ${kinds[@]+"${kinds[@]}"}
