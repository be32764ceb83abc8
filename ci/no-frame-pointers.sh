#!/usr/bin/env bash
# All tests in a build without frame pointers, which is what users have who did not read the README.
set -euo pipefail
cd "$(dirname "$0")/.."

# An empty RUSTFLAGS puts aside the flag of .cargo/config.toml. Own folder: other flags rebuild everything.
export RUSTFLAGS=""
command="$(ci/readme.sh test)"
echo "+ RUSTFLAGS='' CARGO_TARGET_DIR=target/no-frame-pointers $command"
CARGO_TARGET_DIR="$PWD/target/no-frame-pointers" bash -euo pipefail -c "$command"
