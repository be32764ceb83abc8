#!/usr/bin/env bash
# Stacks in kinds of build that users have (tests/readers/builds.rs): without debug information, with it apart or compressed,
# and stripped, walked by frame pointers (ci/no-frame-pointers.sh has release builds by unwind tables). And waits of unmodified
# code, however the C library is linked (tests/readers/link_matrix.rs). All kinds, both ways, take minutes: `all`, as in
# ci/long.sh. `all` needs dwz, which Debian's and Fedora's packages are compressed by: where it cannot be installed the test
# says so and skips, with RTPROF_REQUIRE_DWZ=1 it fails.
set -euo pipefail
cd "$(dirname "$0")/.."

kinds=(builds::by_frame_pointers::{release_without_debug_information,split_debug_information,stripped,kept_apart,c_without_eh_frame})
links=(link_matrix::{release,loaded_by_another_program,gnu_ld_stripped,musl_fat_lto})
if [[ "${1:-}" == all ]]; then
    kinds=(builds::) links=(link_matrix::)
    if ! command -v dwz >/dev/null && [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
        apt-get update
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends dwz
    fi
fi
cargo test --test readers -- --ignored --test-threads=1 "${kinds[@]}" "${links[@]}"
