#!/usr/bin/env bash
# The README's example writes its two profiles, and `go tool pprof` reads them without a complaint.
set -euo pipefail
cd "$(dirname "$0")/.."

files=(heap.pb.gz allocs.pb.gz)
rm -f "${files[@]}"
command="$(ci/readme.sh example)"
echo "+ $command"
output="$(mktemp)"
trap 'rm -f "$output" "$output.err"' EXIT
bash -euo pipefail -c "$command" | tee "$output"
grep -q 'go tool pprof' "$output" || { echo "it does not print the command to type next" >&2; exit 1; }
for file in "${files[@]}"; do
    [[ -s "$file" ]] || { echo "the example did not write $file" >&2; exit 1; }
    gzip --test "$file"
done

go="$(ci/go.sh env)"
[[ -n "$go" ]] || exit 0
eval "$go"
for file in "${files[@]}"; do
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
