#!/usr/bin/env bash
# The tests against `go tool pprof` and `go tool trace`, which must not skip themselves here: as a release build, where
# they start a thousand traces, and `ci/test.sh` has run them as a debug build.
set -euo pipefail
cd "$(dirname "$0")/.."

export RTPROF_REQUIRE_GO=1
ci/go.sh
cargo test --release --test "interop*"
