#!/usr/bin/env bash
# The README's examples write their profiles, and `go tool pprof` reads them without a complaint.
set -euo pipefail
cd "$(dirname "$0")/.."

output="$(mktemp)"
trap 'rm -f "$output" "$output.err"' EXIT
go="$(ci/go.sh env)"
[[ -z "$go" ]] || eval "$go"

# NAME FUNCTION FILE...: the command of that name in the README, a function of it, and what it is to write.
check() {
    local name="$1" function="$2" command file report
    shift 2
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
        for report in -top -traces -raw "-list=$function"; do
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

check example main heap.pb.gz allocs.pb.gz
check contention count_page block.pb.gz mutex.pb.gz
# What the example is about stands in the profiles: the hot mutex first of all who made others wait, its waiters and
# the starving channel's before all others who waited.
[[ -z "$go" ]] || for wanted in 'mutex.pb.gz 1 count_page' 'block.pb.gz 2 count_page' 'block.pb.gz 2 archive'; do
    read -r file rows function <<<"$wanted"
    # The rows below the titles.
    first="$(go tool pprof -top "$file" | awk -v rows="$rows" 'found && found++ <= rows; /flat%/ { found = 1 }')"
    grep -q "contention::$function$" <<<"$first" || { echo "$file begins with: $first" >&2; exit 1; }
done

# The trace: made without a loss, read by the commands of the README, with the example's threads and waits in it.
rm -f trace.out sync.pb.gz
trace="$(ci/readme.sh trace)"
echo "+ $trace"
bash -euo pipefail -c "$trace" | tee "$output"
grep -q ', 0 dropped' "$output" || { echo "the example lost events" >&2; exit 1; }
[[ -s trace.out ]] || { echo "the example did not write trace.out" >&2; exit 1; }
if [[ -n "$go" ]]; then
    # The last line is a server.
    look="$(ci/readme.sh trace-look | sed '$d')"
    echo "+ $look"
    bash -euo pipefail -c "$look" | tee "$output"
    grep -q 'trace::remember$' "$output" || { echo "the hot lock is not in the profile of waits" >&2; exit 1; }
    go tool trace -d=parsed trace.out >"$output"
    for wanted in 'parser 0' 'merger' 'TaskBegin .*Type="page"' 'RegionBegin .*Type="parse"' 'Log .*most frequent' \
        'Metric .*heap/objects:bytes'; do
        grep -q "$wanted" "$output" || { echo "no $wanted in the trace" >&2; exit 1; }
    done
fi

# The service answers what the README has us type.
service="$(ci/readme.sh service)"
echo "+ $service &"
cargo build --release --features axum --example service
# Its group, so that cargo, the service and its clients end together.
setsid bash -euo pipefail -c "exec $service" >"$output" 2>&1 &
group=$!
trap 'kill -- -"$group" 2>/dev/null || true; rm -f "$output" "$output.err" "$output.fetched"' EXIT
for _ in $(seq 100); do
    curl --silent --fail --output /dev/null http://127.0.0.1:6060/debug/pprof/ && break
    kill -0 "$group" || { cat "$output" >&2; exit 1; }
    sleep 0.2
done
grep -q 'go tool pprof' "$output" || { echo "it does not print the command to type next" >&2; exit 1; }
# Until the leak and the lock are seen.
sleep 5
while IFS= read -r line; do
    [[ -n "$go" || "$line" != go* ]] || continue
    echo "+ $line"
    bash -euo pipefail -c "$line" >"$output.fetched" 2>"$output.err" </dev/null || {
        cat "$output.fetched" "$output.err" >&2
        exit 1
    }
    head -n 12 "$output.fetched"
    case "$line" in
    curl*) grep -q '^heap profile: ' "$output.fetched" ;;
    *heap*) grep -q 'service::remember_answer$' "$output.fetched" ;;
    *mutex*) grep -q 'service::count_search$' "$output.fetched" ;;
    esac || { echo "what the example is about is not there" >&2; exit 1; }
done < <(ci/readme.sh fetch)
