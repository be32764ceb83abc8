#!/usr/bin/env bash
# The README's test command, word for word, but that it goes on after a binary with a test that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

# For ci/perfetto.sh.
export RTPROF_KEEP_PERFETTO="$PWD/target/tmp/perfetto"
rm -rf "$RTPROF_KEEP_PERFETTO"
mkdir -p "$RTPROF_KEEP_PERFETTO"

command="$(ci/readme.sh test) --no-fail-fast"
echo "+ $command"
bash -euo pipefail -c "$command"
