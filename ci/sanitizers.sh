#!/usr/bin/env bash
# Tests under AddressSanitizer, with its search for leaks, and under Miri, where a nightly compiler is installed, and the search
# for leaks alone under Valgrind, where that is. Left out is what is about limits of address space and about resident memory, both of
# which the sanitizer takes for itself, tests that leak on purpose, and one about the start of threads, for which the sanitizer
# has a function of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

leaks='what_a_sampled_object_holds_is_no_leak'

if command -v valgrind >/dev/null; then
    binary="$(cargo test --no-run --test profilers 2>&1 | sed -n 's/.*(\(.*profilers-.*\)).*/\1/p')"
    # It finds the child by its own path, which would be Valgrind's otherwise.
    valgrind --quiet --trace-children=yes --leak-check=full --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect \
        --error-exitcode=9 "$binary" --include-ignored --test-threads=1 --exact "heap::layouts::$leaks"
else
    echo 'SKIPPED: Valgrind is not installed' >&2
fi

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "SKIPPED: a nightly compiler is not installed ('rustup toolchain install nightly' brings it)" >&2
    exit 0
fi
export RUSTFLAGS='-Zsanitizer=address' CARGO_TARGET_DIR="$PWD/target/sanitizers"
export ASAN_OPTIONS='detect_leaks=1:allocator_may_return_null=1'
sanitized() { cargo +nightly test --target "$(rustc -vV | sed -n 's/^host: //p')" "$@"; }
# Data structures, wakers and hooks by themselves.
sanitized --no-fail-fast --lib -p rtprof-runtime -p rtprof-profiler -p rtprof-tracer -p rtprof-allocator -p rtprof-hooks -- \
    --skip what_a_handler_does_not_leave_is_not_freed --skip modules::history
sanitized --test profilers -- --include-ignored "$leaks" a_leaked_large_object_is_reported
sanitized --no-fail-fast --test hostile_reentry --test truth
sanitized --no-fail-fast --test profilers -- heap:: hostile_locks:: profile_api:: tasks:: traces:: waits:: \
    --skip cpu:: --skip goroutines:: --skip task_traces:: --skip hostile_limit --skip it_goes_back_after_exports --skip thread_destructors \
    --skip storms_of_threads_that_exit_after_a_wait --skip a_task_that_is_polled_has_its_part_of_the_stack \
    --skip no_wake_is_lost_and_no_slot

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "SKIPPED: Miri is not installed ('rustup component add --toolchain nightly miri rust-src' brings it)" >&2
    exit 0
fi
# Miri knows no assembly and few system calls: what it can run are the data structures.
export MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-permissive-provenance' RUSTFLAGS='' CARGO_TARGET_DIR="$PWD/target/miri"
cargo +nightly miri test -p rtprof-runtime --lib -- slots:: stack::table shared_waker name::tests state::tests
cargo +nightly miri test -p rtprof-hooks --lib -- account waiters requests
