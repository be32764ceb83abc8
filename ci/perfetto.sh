#!/usr/bin/env bash
# Decodes traces with Perfetto's own definitions, which its package on PyPI has: no field may be unknown to them.
#
#   ci/perfetto.sh                  the traces that ci/test.sh has kept
#   ci/perfetto.sh FILE|FOLDER...   these
#   ci/perfetto.sh install          only brings the package, into target/perfetto
#
# Without Python or pip this says so and ends well; with RTPROF_REQUIRE_GO=1, as in .ci/run, it fails.
set -euo pipefail
cd "$(dirname "$0")/.."

# The newest of both when this was written.
packages=(perfetto==0.59.1 protobuf==7.36.2)
home="$PWD/target/perfetto"

absent() {
    echo "PERFETTO'S DEFINITIONS ARE ABSENT: $1" >&2
    [[ "${RTPROF_REQUIRE_GO:-0}" != 1 ]] || exit 1
    exit 0
}

python="$(command -v python3 || command -v python)" || absent "no Python to fetch them with"
if [[ "$(cat "$home/ready" 2>/dev/null)" != "${packages[*]}" ]]; then
    "$python" -m pip --version >/dev/null 2>&1 || absent "$python has no pip to fetch them with"
    rm -rf "$home"
    PIP_ROOT_USER_ACTION=ignore "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --target "$home" "${packages[@]}" >&2 || absent "pip could not install ${packages[*]}"
    echo "${packages[*]}" >"$home/ready"
fi
[[ "${1:-}" != install ]] || exit 0

# As in ci/test.sh.
[[ $# -gt 0 ]] || set -- target/tmp/perfetto
PYTHONPATH="$home" exec "$python" ci/decode_perfetto.py "$@"
