#!/usr/bin/env bash
# The README's test command, word for word.
set -euo pipefail
cd "$(dirname "$0")/.."

command="$(ci/readme.sh test)"
echo "+ $command"
bash -euo pipefail -c "$command"
