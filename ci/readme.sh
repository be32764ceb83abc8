#!/usr/bin/env bash
# Prints the command that the README, or docs/examples.md, shows after `<!-- ci:NAME -->`, so that CI runs what users
# type.
#
#   ci/readme.sh test | example | cpu | contention | service | fetch | fetch-trace | hang | hang-look | ...
set -euo pipefail
cd "$(dirname "$0")/.."

name="${1:?which command: test, example, cpu, contention, service, fetch, fetch-trace ...}"
command="$(awk -v marker="<!-- ci:$name -->" '
    index($0, marker)      { wanted = 1; next }
    wanted && /^```/       { if (inside) exit; inside = 1; next }
    wanted && inside       { print }
' README.md docs/examples.md)"
if [[ -z "$command" ]]; then
    echo "neither README.md nor docs/examples.md has a code block after <!-- ci:$name -->" >&2
    exit 1
fi
printf '%s\n' "$command"
