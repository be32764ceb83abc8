#!/usr/bin/env bash
# Whether the public interface has changed as the versions say: cargo-semver-checks compares every published crate with
# itself at a commit, by default the last release, and reexports.py the names that they re-export from each other. The crates
# behind the facade promise no stability: of theirs, only what the facade re-exports counts. Where
# cargo-semver-checks is not installed, or before the first release, this says so.
#
#   ci/semver.sh [COMMIT]
set -euo pipefail
cd "$(dirname "$0")/.."

base="${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}"
if [[ -z "$base" ]]; then
    echo "SKIPPED: there is no release yet; name a commit to compare with" >&2
    exit 0
fi
ci/reexports.py "$base"
if ! cargo semver-checks --version >/dev/null 2>&1; then
    echo "SKIPPED: 'cargo install --locked cargo-semver-checks' brings the tool" >&2
    exit 0
fi
cargo semver-checks --workspace --exclude rtprof-benches --exclude rtprof-trace-check --exclude rtprof-test-support --baseline-rev "$base"
