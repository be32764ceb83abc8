#!/usr/bin/env bash
# The tests against `go tool pprof`, which must not skip themselves here.
set -euo pipefail
cd "$(dirname "$0")/.."

export RTPROF_REQUIRE_GO=1
ci/go.sh
cargo test --test "interop*"
