#!/usr/bin/env bash
# Formatting, of the workspace and of the programs that are no part of it.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo fmt --all -- --check
find tests/fixtures ci/least-versions -name '*.rs' -print0 | xargs -0 --no-run-if-empty rustfmt --check --edition 2024
