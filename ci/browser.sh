#!/usr/bin/env bash
# Brings the browser that the tests of our pages look through: no dependency of the project but of these tests.
# `cargo test --test readers browser` runs them; where there is no browser they say so and skip, with
# RTPROF_REQUIRE_BROWSER=1, as in .ci/run, they fail.
set -euo pipefail
cd "$(dirname "$0")/.."

# The names that test-support/src/browser.rs looks for.
installed() {
    command -v chromium || command -v chromium-browser || command -v google-chrome ||
        command -v google-chrome-stable
}

if ! installed >/dev/null; then
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        echo "NO BROWSER: install Chromium (Debian: apt-get install chromium) so that it is on the PATH." >&2
        exit 1
    fi
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium
fi
installed
