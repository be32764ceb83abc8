#!/usr/bin/env bash
# The tests that look at our pages through a real browser, which must not skip themselves here.
#
# Brings Chromium where there is none and apt can: it is no dependency of the project but of these tests.
set -euo pipefail
cd "$(dirname "$0")/.."

# The names that tests/support/browser.rs looks for.
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

export RTPROF_REQUIRE_BROWSER=1
cargo test --test browser
