#!/bin/sh
# All tests under AddressSanitizer and UndefinedBehaviorSanitizer, the thread pool
# and two-thread runs under ThreadSanitizer, small runs under valgrind.
#
# usage: tests/sanitize.sh [asan] [tsan] [valgrind]      (default: all three)
#
# Not part of the quick test run: it builds the project three times.
set -eu
cd "$(dirname "$0")/.."
parts=${*:-asan tsan valgrind}
outputs="tsv json npz png svg pdf"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '== %s\n' "$*"; }

build() { # folder, options...
    dir=$1
    shift
    [ -f "$dir/build.ninja" ] || meson setup "$dir" --buildtype=debugoptimized "$@" >"$work/setup.log" \
        || { cat "$work/setup.log"; exit 1; }
    ninja -C "$dir" >"$work/ninja.log" || { tail -40 "$work/ninja.log"; exit 1; }
}

# Runs of a tiny model that touch cache, methods, probes, trace and analyzers.
runs() { # program, models, command before it...
    exe=$1 models=$2
    shift 2
    printf 'the thing in there, and it is the other one. %.0s' 1 2 3 4 5 6 >"$work/prompt"
    for method in $("$exe" methods | awk 'NR > 1 { print $1 }'); do
        "$@" "$exe" run -m "$models/tiny6.gguf" --raw -f "$work/prompt" -n 12 --ignore-eos -q -t 2 \
            --chunk 33 --method "$method" -B 24 --probes full -o "$work/$method.kvf" >"$work/out"
    done
    "$@" "$exe" generate -m "$models/tiny4.gguf" -p 'the thing' -n 8 --temp 1 -q -t 2 >"$work/out"
    printf ' = A = \n%s = B = \n%s' "$(cat "$work/prompt")" "$(cat "$work/prompt")" >"$work/text"
    "$@" "$exe" eval -m "$models/tiny6.gguf" --data "$work/text" --budgets 12,24 --docs 1 -t 2 \
        --prompt-tokens 40 --score-tokens 12 --state "$work/eval.state" >"$work/out" 2>&1
    "$@" "$exe" logits -m "$models/tiny1.gguf" --raw -p 'the thing' -o "$work/l.npy" -t 2
    for command in info verify eviction retention survival occupancy tokens sparsity hazard \
        persistence intermittency overlap attention-sparsity dilution kv-size density runs words heads \
        "received --spread heads"; do
        "$@" "$exe" $command "$work/h2o.kvf" >"$work/out"
    done
    for ext in $outputs; do
        "$@" "$exe" eviction "$work/h2o.kvf" -o "$work/e.$ext"
    done
}

asan() {
    say "AddressSanitizer and UndefinedBehaviorSanitizer: all tests"
    build build-asan -Db_sanitize=address,undefined -Db_lundef=false
    # fontconfig and pango keep caches to the end: not ours to free
    printf 'leak:libfontconfig\nleak:libpango\nleak:libcairo\nleak:libglib\nleak:libgobject\n' >"$work/leaks"
    export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    export LSAN_OPTIONS="suppressions=$work/leaks:print_suppressions=0"
    # tiny models only: the real one takes many minutes here, and one short run of it says as much
    KVFATE_CACHE=$work meson test -C build-asan --num-processes 2 --timeout-multiplier 8 --print-errorlogs
    if [ -r "${KVFATE_CACHE:-$HOME/.cache/kvfate}/SmolLM2-135M-Instruct.Q4_1.gguf" ]; then
        build-asan/cli/kvfate run -p 'Name three rivers.' -n 4 -q -o "$work/real.kvf"
    fi
    say "the same with the reference kernels"
    KVFATE_CPU_MASK=0 runs build-asan/cli/kvfate build-asan/tests/engine env
}

tsan() {
    say "ThreadSanitizer: pool and two-thread runs"
    build build-tsan -Db_sanitize=thread -Db_lundef=false
    export TSAN_OPTIONS=halt_on_error=1:exitcode=66
    build-tsan/tests/unit/race_json
    build-tsan/tests/unit/race_par # Criterion itself does not start under this tool
    build-tsan/tests/train/race_attention
    /usr/bin/python3 tests/analyze/test_threads.py build-tsan/cli/kvfate build-tsan/tests/analyze/write_kvf tests/format/read_kvf.py
    outputs="tsv json npz" # fontconfig, which Pango starts in a thread, races with itself
    runs build-tsan/cli/kvfate build-tsan/tests/engine env
    outputs="tsv json npz png svg pdf"
}

valgrind_() {
    say "valgrind: small runs, kernels without AVX-512"
    build build-plain
    for lib in fontconfig pango cairo glib; do # they keep caches to the end: not ours to free
        printf '{\n%s\nMemcheck:Leak\n...\nobj:*lib%s*\n}\n' $lib $lib
    done >"$work/valgrind.supp"
    KVFATE_CPU_MASK=1 runs build-plain/cli/kvfate build-plain/tests/engine \
        valgrind --quiet --suppressions="$work/valgrind.supp" --error-exitcode=99 --leak-check=full --show-leak-kinds=definite \
        --errors-for-leak-kinds=definite
}

for part in $parts; do
    case $part in
    asan) asan ;;
    tsan) tsan ;;
    valgrind) valgrind_ ;;
    *) echo "usage: tests/sanitize.sh [asan] [tsan] [valgrind]" >&2; exit 2 ;;
    esac
done
say "clean: $parts"
