#!/usr/bin/env bash
# The README's examples write their profiles, and `go tool pprof` reads them without a complaint.
set -euo pipefail
cd "$(dirname "$0")/.."

output="$(mktemp)"
trap 'rm -f "$output" "$output.err"' EXIT
go="$(ci/go.sh env)"
[[ -z "$go" ]] || eval "$go"

# NAME FILE...: the command of that name in the README, and what it is to write.
check() {
    local name="$1" command file report
    shift
    rm -f "$@"
    command="$(ci/readme.sh "$name")"
    echo "+ $command"
    bash -euo pipefail -c "$command" | tee "$output"
    grep -q 'go tool pprof' "$output" || { echo "it does not print the command to type next" >&2; exit 1; }
    for file in "$@"; do
        [[ -s "$file" ]] || { echo "the example did not write $file" >&2; exit 1; }
        gzip --test "$file"
    done
    [[ -n "$go" ]] || return 0
    for file in "$@"; do
        for report in -top -traces -raw -list=main; do
            go tool pprof "$report" "$file" >"$output" 2>"$output.err"
            if [[ ! -s "$output" || -s "$output.err" ]]; then
                echo "go tool pprof $report $file:" >&2
                cat "$output.err" >&2
                exit 1
            fi
        done
        go tool pprof -top -nodecount=10 "$file"
    done
}

check example heap.pb.gz allocs.pb.gz
check contention block.pb.gz mutex.pb.gz
# What the example is about stands in the profiles: the first function of each.
[[ -z "$go" ]] || for wanted in 'mutex.pb.gz count_pages' 'block.pb.gz archive'; do
    read -r file function <<<"$wanted"
    # The row below the titles.
    first="$(go tool pprof -top "$file" | awk 'found { print; exit } /flat%/ { found = 1 }')"
    grep -q "$function" <<<"$first" || { echo "$file begins with: $first" >&2; exit 1; }
done
