#!/usr/bin/env bash
# The examples of the README and of docs/examples.md write their profiles, and `go tool pprof` reads them without a complaint.
# Stacks are walked by unwind tables; ci/builds.sh has release builds with frame pointers. `build` compiles the examples and
# runs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/light-release.sh
without_frame_pointers

# All at once, so that they are linked side by side.
cargo build --release --examples
cargo build --release --features axum --example service
cargo build --release --features interpose --example unmodified
cargo build --release -p rtprof-trace-check --bin check-trace
[[ "${1:-}" != build ]] || exit 0

output="$(mktemp)"
trap 'rm -f "$output" "$output.err" "$output.fetched"' EXIT
go="$(ci/go.sh env)"
[[ -z "$go" ]] || eval "$go"
# No browser, and no copies of profiles in the home folder.
export BROWSER=/bin/true PPROF_TMPDIR="$PWD/target/go/pprof"

# NAME FUNCTION FILE...: the command of that name in the README, a function of it, and what it is to write.
check() {
    local name="$1" function="$2" command file report
    shift 2
    rm -f "$@"
    command="$(ci/readme.sh "$name")"
    echo "+ $command"
    # Within a condition, as here now and then, `set -e` does not hold.
    bash -euo pipefail -c "$command" | tee "$output" || exit 1
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

# Runs a check again if it fails, three times in all: for what other work on the machine may disturb once, as the order
# of two waits of similar length, and what is wrong if it is never seen.
within_three() {
    for _ in 1 2 3; do
        if "$@"; then return; fi
    done
    exit 1
}

# The leak is seen first.
leak() {
    check example remember_page heap.pb.gz allocs.pb.gz
    [[ -n "$go" ]] || return 0
    local top
    top="$(go tool pprof -top -nodecount=1 heap.pb.gz)"
    grep -q 'leak::remember_page$' <<<"$top" || { echo "the leak is not first: $top" >&2; return 1; }
    # Its stack is whole: from the program's function to the start of its thread.
    go tool pprof -traces heap.pb.gz >"$output" || exit 1
    awk '/leak::remember_page$/ { inside = 1 } /^-----/ { inside = 0 } inside && /thread start$/ { found = 1 } END { exit !found }' "$output" ||
        { echo "the stack of the leak ends early:" >&2; cat "$output" >&2; exit 1; }
}
within_three leak

# The hot function stands high among all: a fifth of the time, of which it has the most that is not compression.
check cpu is_stop_word cpu.pb.gz
if [[ -n "$go" ]]; then
    share="$(go tool pprof -top -cum cpu.pb.gz | awk '$NF == "hot_function::is_stop_word" { print int($5) }')"
    ((${share:-0} >= 8)) || { echo "is_stop_word has ${share:-no} % of cpu.pb.gz" >&2; exit 1; }
fi

# What the example is about stands in the profiles: the hot mutex first of all who made others wait, its waiters and
# the starving channel's before all others who waited.
contention() {
    local wanted file rows function first
    check contention count_page block.pb.gz mutex.pb.gz
    [[ -n "$go" ]] || return 0
    for wanted in 'mutex.pb.gz 1 count_page' 'block.pb.gz 2 count_page' 'block.pb.gz 2 archive'; do
        read -r file rows function <<<"$wanted"
        # The rows below the titles.
        first="$(go tool pprof -top "$file" | awk -v rows="$rows" 'found && found++ <= rows; /flat%/ { found = 1 }')"
        grep -q "hot_lock::$function$" <<<"$first" || { echo "$file begins with: $first" >&2; return 1; }
    done
}
within_three contention

# What is freed late counts at the right cut; without the collector's calls it would not. Each malloc and free is shown.
epochs="$(ci/readme.sh epochs)"
for option in '' ' -- --plain' ' -- --events'; do
    echo "+ $epochs$option"
    bash -euo pipefail -c "$epochs$option" >"$output" 2>"$output.err" || { cat "$output.err" >&2; exit 1; }
    cat "$output"
    awk -v column="$([[ "$option" == *plain ]] && echo 3 || echo 2)" \
        '$1 ~ /^[0-9]+$/ { rows++; wrong += $4 != $column } END { exit rows != 5 || wrong }' "$output" ||
        { echo "the heap profile of epochs is not that of the cut" >&2; exit 1; }
done
grep -q '^tracefree(' "$output.err" || { echo "epochs --events shows no free" >&2; exit 1; }

# The trace: made without a loss, read by the commands of the README, with the example's threads and waits in it.
trace="$(ci/readme.sh trace)"
without_loss() {
    rm -f trace.out sync.pb.gz
    echo "+ $trace"
    bash -euo pipefail -c "$trace" | tee "$output" || exit 1
    grep -q ', 0 dropped' "$output" || { echo "the example lost events" >&2; return 1; }
}
within_three without_loss
[[ -s trace.out ]] || { echo "the example did not write trace.out" >&2; exit 1; }
if [[ -n "$go" ]]; then
    # The last line is a server.
    look="$(ci/readme.sh trace-look | sed '$d')"
    echo "+ $look"
    bash -euo pipefail -c "$look" | tee "$output"
    grep -q 'pipeline::remember$' "$output" || { echo "the hot lock is not in the profile of waits" >&2; exit 1; }
    go tool trace -d=parsed trace.out >"$output"
    for wanted in 'parser 0' 'merger' 'TaskBegin .*Type="page"' 'RegionBegin .*Type="parse"' 'Log .*most frequent' \
        'Metric .*heap/objects:bytes'; do
        grep -q "$wanted" "$output" || { echo "no $wanted in the trace" >&2; exit 1; }
    done
fi

# The same for Perfetto: right by our own checker and by Perfetto's definitions, and with the example's threads and waits.
perfetto="$(ci/readme.sh trace-perfetto)"
perfetto_without_loss() {
    rm -f trace.perfetto-trace
    echo "+ $perfetto"
    bash -euo pipefail -c "$perfetto" | tee "$output" || exit 1
    grep -q ', 0 dropped' "$output" || { echo "the example lost events" >&2; return 1; }
}
within_three perfetto_without_loss

# FILE WANTED...: checks a file, and that it has these lines.
check_perfetto() {
    local file="$1" wanted
    shift
    cargo run --quiet --release -p rtprof-trace-check --bin check-trace -- "$file" >"$output.fetched"
    tail -n 1 "$output.fetched"
    for wanted in "$@"; do
        grep -q "$wanted" "$output.fetched" || { echo "no $wanted in $file" >&2; exit 1; }
    done
    ci/perfetto.sh "$file"
}
check_perfetto trace.perfetto-trace '"parser 0" "sync: mutex" "wait" ' '"parser 0" "running" ' '"page" "page" "task" ' \
    '"regions" "parse" ' '"reader" "syscall" "wait" ' '"merger" "[a-z]*" "most frequent" ' '"live heap" ' \
    ' [1-9][0-9]* samples of the processor'

# The service that is slow now and then: its window has the slow request, and its wait before all others; the saver held
# the lock, and woke the request.
flight() {
    local run look window
    run="$(ci/readme.sh flight)"
    rm -rf slow-requests
    echo "+ $run"
    bash -euo pipefail -c "$run" || exit 1
    for window in slow-requests/*.trace; do
        [[ -s "$window" ]] || { echo "no window was written" >&2; exit 1; }
    done
    [[ -n "$go" ]] || return 0
    # The last line is a server.
    look="$(ci/readme.sh flight-look | sed '$d')"
    echo "+ $look"
    bash -euo pipefail -c "$look" | tee "$output" || exit 1
    # Unless the machine was slow before the lock was.
    awk 'found { print; exit } /flat%/ { found = 1 }' "$output" | grep -q 'slow_request::Index::look_up' ||
        { echo "the request's wait for the lock is not first" >&2; return 1; }
    go tool trace -d=parsed "$window" >"$output" || exit 1
    grep -q 'Log .*Category="slow" Message="search took ' "$output" ||
        { echo "no slow request in the window" >&2; exit 1; }
    grep -A 2 'Waiting->Runnable' "$output" | grep -q 'slow_request::Index::save ' ||
        { echo "the window does not show who held the lock" >&2; return 1; }
}
within_three flight

# A minute, on the clock.
deadline() { ((SECONDS < $1)) || { echo "not within a minute: $2" >&2; exit 1; }; }

# Starts a program that serves profiles, waits until it answers, and sets `address` and `group`: it and all that it starts end
# together. What it writes is in $output.
start() {
    setsid bash -euo pipefail -c "exec $1" >"$output" 2>&1 &
    group=$!
    trap 'kill -- -"$group" 2>/dev/null || true; rm -f "$output" "$output.err" "$output.fetched"' EXIT
    local ends=$((SECONDS + 60))
    address=
    until [[ -n "$address" ]] && curl --silent --fail --output /dev/null "http://$address/debug/pprof/"; do
        kill -0 "$group" || { cat "$output" >&2; exit 1; }
        deadline "$ends" "the program listens"
        sleep 0.2
        address="$(sed -n 's|.*http://\([0-9.:]*\)/debug/pprof/.*|\1|p' "$output" | head -n 1)"
    done
}

# Ends what was started last.
end() {
    kill -- -"$group"
    wait "$group" 2>/dev/null || true
}

# The numbers of the two lines of a file at which something waits for ever.
guilty() {
    local numbers
    numbers="$(grep -n 'waits for ever' "$1" | cut -d: -f1)"
    [[ "$(wc -w <<<"$numbers")" == 2 ]] || { echo "$1 has not two guilty lines" >&2; exit 1; }
    echo "$numbers"
}

# RUN LOOK NAMES: runs one command of the README in the background, on any port as its own may be taken, and another one until
# NAMES finds in $output.fetched what it has to say.
look() {
    local run look ends
    run="$(ci/readme.sh "$1")"
    run="$run -- 127.0.0.1:0"
    echo "+ $run &"
    # Its input stays open, and empty.
    start "$run < <(exec sleep 1000 2>/dev/null)"
    ends=$((SECONDS + 60))
    look="$(ci/readme.sh "$2")"
    echo "+ $look"
    look="${look//127.0.0.1:6060/$address}"
    # Once it has got there.
    until bash -euo pipefail -c "$look" >"$output.fetched" </dev/null && "$3"; do
        cat "$output.fetched"
        deadline "$ends" "$3"
        sleep 0.2
    done
    end
}

# The program that hangs tells in which two lines.
names_both_locks() {
    local number numbers
    numbers="$(guilty examples/deadlock.rs)" || exit 1
    for number in $numbers; do
        grep -A 2 'sync.Mutex.Lock' "$output.fetched" | grep -q "examples/deadlock.rs:$number " || return 1
    done
    # The other two tell where they are as well: one computes, one waits for a line.
    grep -A 40 'deadlock::sort_for_ever"' "$output.fetched" | grep -q '^deadlock::sort_for_ever(' || return 1
    grep -A 40 'deadlock::read_a_line"' "$output.fetched" | grep -q '^deadlock::read_a_line(' || return 1
    grep -A 2 'deadlock::read_a_line"' "$output.fetched" | grep -q '^goroutine .* \[syscall[],]' || return 1
}
look hang hang-look names_both_locks
head -n 24 "$output.fetched"

# The service that is stuck tells at which two awaits, and in which task a worker is blocked.
names_both_awaits() {
    local number numbers
    numbers="$(guilty examples/stuck_task.rs)" || exit 1
    for number in $numbers; do
        grep -A 40 '"order"' "$output.fetched" | grep -q "examples/stuck_task.rs:$number " || return 1
    done
    grep -A 2 '"order"' "$output.fetched" | grep -q '^goroutine .* \[await[],]' || return 1
    grep -A 2 '"report"' "$output.fetched" | grep -q '^goroutine .* \[syscall[],]' || return 1
    grep -A 20 '"report"' "$output.fetched" | grep -q '^stuck_task::print_report(' || return 1
}
look stuck stuck-look names_both_awaits
grep -A 12 '"report"' "$output.fetched"

# The service answers what the README has us type; on any port too.
service="$(ci/readme.sh service) -- 127.0.0.1:0"
echo "+ $service &"
start "$service"
grep -q 'go tool pprof' "$output" || { echo "it does not print the command to type next" >&2; exit 1; }

# Whether the answer to a line of the README has what the example is about in it.
tells() {
    case "$1" in
    curl*) grep -q '^heap profile: ' "$output.fetched" ;;
    *heap*) grep -q 'service::remember_answer$' "$output.fetched" ;;
    *mutex*) grep -q 'service::count_search$' "$output.fetched" ;;
    *) false ;;
    esac
}

while IFS= read -r line; do
    [[ -n "$go" || "$line" != go* ]] || continue
    echo "+ $line"
    line="${line//127.0.0.1:6060/$address}"
    ends=$((SECONDS + 60))
    # The leak and the lock have to be seen first.
    while true; do
        bash -euo pipefail -c "$line" >"$output.fetched" 2>"$output.err" </dev/null || {
            cat "$output.fetched" "$output.err" >&2
            exit 1
        }
        if tells "$line"; then break; fi
        head -n 12 "$output.fetched"
        deadline "$ends" "what the example is about is in the answer"
        sleep 0.2
    done
    head -n 12 "$output.fetched"
done < <(ci/readme.sh fetch)

# Its requests in a trace: the waits for the async lock are first, in the function that holds it over a slow answer.
if [[ -n "$go" ]]; then
    # The last line is a server.
    look="$(ci/readme.sh fetch-trace | sed '$d')"
    echo "+ $look"
    look="${look//127.0.0.1:6060/$address}"
    bash -euo pipefail -c "$look" >"$output.fetched"
    cat "$output.fetched"
    ask='service::Thesaurus::ask::{{closure}}'
    awk 'found { print; exit } /flat%/ { found = 1 }' "$output.fetched" | grep -qF "$ask" ||
        { echo "the async lock is not first in the profile of waits" >&2; exit 1; }
    go tool trace -pprof=net service.out >"$output.fetched"
    go tool pprof -top "$output.fetched" 2>"$output.err" | grep -F "$ask" ||
        { echo "the slow service is not in the profile of the network" >&2; exit 1; }
    go tool trace -d=parsed service.out >"$output.fetched"
    for wanted in 'TaskBegin .*Type="GET /similar"' 'RegionBegin .*Type="thesaurus"' 'RegionEnd .*Type="thesaurus"'; do
        grep -q "$wanted" "$output.fetched" || { echo "no $wanted in the service's trace" >&2; exit 1; }
    done
fi
# The same for Perfetto: the requests are tasks, that wait for the lock and for the network.
fetch="$(ci/readme.sh fetch-perfetto)"
echo "+ $fetch"
bash -euo pipefail -c "${fetch//127.0.0.1:6060/$address}"
check_perfetto service.perfetto-trace '"GET /similar" "GET /similar" "task" ' '"GET /similar [0-9]*" "tokio: sync[^"]*" "wait" ' \
    '"GET /similar [0-9]*" "network" "wait" ' '"regions" "thesaurus" ' '"waiting tasks" ' ' [1-9][0-9]* samples of the processor'
end

# The server that knows nothing of rtprof: its hot lock is first in the one profile, its slow channel in the other.
[[ -n "$go" ]] || exit 0
unmodified="$(ci/readme.sh unmodified) -- 127.0.0.1:0"
echo "+ $unmodified &"
start "$unmodified"
while IFS= read -r line; do
    echo "+ $line"
    line="${line//127.0.0.1:6060/$address}"
    ends=$((SECONDS + 60))
    case "$line" in *mutex*) wanted=count_order ;; *) wanted=archive ;; esac
    until bash -euo pipefail -c "$line" >"$output.fetched" 2>"$output.err" </dev/null &&
        awk 'found { print; exit } /flat%/ { found = 1 }' "$output.fetched" | grep -q "unmodified::$wanted\( (inline)\)\?$"; do
        cat "$output.fetched" "$output.err"
        deadline "$ends" "$wanted is first"
        sleep 0.5
    done
    cat "$output.fetched"
done < <(ci/readme.sh unmodified-look)
