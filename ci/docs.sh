#!/usr/bin/env bash
# The documentation of every feature builds without a warning, broken links among them.
set -euo pipefail
cd "$(dirname "$0")/.."

RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
