#!/usr/bin/env bash
# The benchmarks, without the peers, pass their own tests and print their table in its quick form; what it says is for a quiet
# machine to tell. That they compile is a matter of ci/clippy.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test -p rtprof-benches --lib --bin bench --bin slower --bin verdicts --no-fail-fast
report="$(mktemp -d)"
trap 'rm -rf "$report"' EXIT
table="$(cargo run --release -p rtprof-benches --bin bench -- --quick --report "$report")"
printf '%s\n' "$table"
for row in 'rtprof, block 1, mutex 1' 'one mutex event, hot' 'channel ping-pong' 'latency of a tokio service' 'heap profile, 10000 records' 'clients at once' 'region begin, 10 frames' 'call: epoll_wait' 'request to a server of tokio' 'goroutine profile, 10000 tasks that wait' 'file server, half idle' 'a contended Mutex of std' 'events a second of both profiles'; do
    grep -q "$row" <<<"$table" || { echo "the table has no row '$row'" >&2; exit 1; }
done
# A quick run has no jemalloc; every other budget has a figure.
[[ -s "$report/budgets.md" ]]
missing="$(grep 'not measured' "$report/budgets.md" | grep -v 'jemalloc' || true)"
[[ -z "$missing" ]] || { echo "budgets without a figure: $missing" >&2; exit 1; }
grep -q '</svg>' "$report/budgets.svg"
