#!/usr/bin/env bash
# The documentation of every feature builds without a warning, broken links among them, and the guides link to what exists.
set -euo pipefail
cd "$(dirname "$0")/.."

RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
ci/links.py
