#!/usr/bin/env bash
# Has anything become much slower since a commit? Builds the benchmarks of both, runs their quick forms in turns, and
# fails if an operation takes 1.4 times as long in every pair of runs. A pair that shows nothing ends the check, in a
# quarter of an hour; five pairs at most. Without an argument, the commit is the one of the last report in docs/overhead.
set -euo pipefail
cd "$(dirname "$0")/.."

if (($# == 0)) && [[ "$(git rev-parse --is-shallow-repository)" == true ]]; then
    echo "this clone does not have the commit of the last report: name one, or fetch it with git fetch --unshallow" >&2
    exit 2
fi
base="${1:-$(git log -1 --format=%h -- docs/overhead/budgets.md)}"
git rev-parse --verify --quiet "$base^{commit}" >/dev/null || { echo "no commit '$base'" >&2; exit 2; }
work="$PWD/target/regressions"
# A folder for each commit: the files of an older one look older than what was built for a newer one, and cargo would not
# build them again.
built="$work/target-$(git rev-parse "$base^{commit}")"
mkdir -p "$work"
find "$work" -mindepth 1 -maxdepth 1 ! -path "$built" -exec rm -rf {} +
mkdir -p "$work/before" "$work/tables"
git archive "$base" | tar -x -C "$work/before"

before() { (cd "$work/before" && CARGO_TARGET_DIR="$built" cargo run --release -q -p rtprof-benches --bin bench -- --quick); }
after() { cargo run --release -q -p rtprof-benches --bin bench -- --quick; }

echo "compared with $(git log -1 --format='%h %s' "$base")"
tables=()
for pair in 1 2 3 4 5; do
    before >"$work/tables/before-$pair.md"
    after >"$work/tables/after-$pair.md"
    tables+=("$work/tables/before-$pair.md" "$work/tables/after-$pair.md")
    status=0
    slower="$(cargo run --release -q -p rtprof-benches --bin slower -- "${tables[@]}")" || status=$?
    ((status < 2)) || exit "$status"
    if ((status == 0)); then
        echo "nothing is much slower, after $pair pairs"
        exit 0
    fi
    printf 'slower in all of %d pairs:\n%s\n' "$pair" "$slower"
done
exit 1
