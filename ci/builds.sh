#!/usr/bin/env bash
# Stacks in every kind of build that users have (tests/builds.rs). Takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

export RTPROF_ALL_BUILDS=1
cargo test --test builds -- --test-threads=1
