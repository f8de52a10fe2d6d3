#!/bin/sh
# All tests under AddressSanitizer and UndefinedBehaviorSanitizer, the thread pool
# and two-thread runs under ThreadSanitizer, small runs under valgrind.
#
# usage: tests/sanitize.sh [asan] [tsan] [valgrind] [figures]      (default: the first three)
#
# figures is short: figures, report and draw alone, in blocks without padding, under AddressSanitizer and
# UndefinedBehaviorSanitizer.  Not part of the quick test run: it builds the project three times.
set -eu
cd "$(dirname "$0")/.."
parts=${*:-asan tsan valgrind}
outputs="tsv json npz png svg pdf"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '== %s\n' "$*"; }

targets= # of build; none: all
device= # options of the runs that choose what computes
build() { # folder, options...
    dir=$1
    shift
    [ -f "$dir/build.ninja" ] || meson setup "$dir" --buildtype=debugoptimized "$@" >"$work/setup.log" \
        || { cat "$work/setup.log"; exit 1; }
    ninja -C "$dir" $targets >"$work/ninja.log" || { tail -40 "$work/ninja.log"; exit 1; }
}

# Runs of a tiny model that touch cache, methods, probes, trace and analyzers.
runs() { # program, models, command before it...
    exe=$1 models=$2
    shift 2
    rm -rf "$work/many" "$work/eval.state"
    mkdir "$work/many"
    printf 'the thing in there, and it is the other one. %.0s' 1 2 3 4 5 6 >"$work/prompt"
    for method in $("$exe" methods | awk '!NF { exit } NR > 1 && !/gates|plan/ { print $1 }'); do
        "$@" "$exe" run -m "$models/tiny6.gguf" --raw -f "$work/prompt" -n 12 --ignore-eos -q -t 2 $device \
            --chunk 33 --method "$method" -B 24 --probes full -o "$work/$method.kvf" --overwrite >"$work/out"
    done
    for pair in trimkv:rg dbtrimkv:rg "locret${device:+:positions=original}:locret" wgkv:wgkv wgkv-snapkv:wgkv \
        wgkv-quest:wgkv seer:seer; do
        gates=tests/method/tiny_${pair##*:}.safetensors
        ninja -C "${models%/tests/engine}" $gates >"$work/ninja.log"
        "$@" "$exe" run -m "$models/tiny0.gguf" --raw -f "$work/prompt" -n 12 --ignore-eos -q -t 2 $device --chunk 33 \
            --method "${pair%:*}" --gates "${models%/engine}/method/$(basename $gates)" -B 24 --probes full -o "$work/gates.kvf" \
            --overwrite >"$work/out"
    done
    "$@" "$exe" generate -m "$models/tiny4.gguf" -p 'the thing' -n 8 --temp 1 -q -t 2 $device >"$work/out"
    printf ' = A = \n%s = B = \n%s' "$(cat "$work/prompt")" "$(cat "$work/prompt")" >"$work/text"
    "$@" "$exe" eval -m "$models/tiny6.gguf" --data "$work/text" --budgets 12,24 --docs 1 -t 2 $device \
        --prompt-tokens 40 --score-tokens 12 --state "$work/eval.state" >"$work/out" 2>&1
    "$@" "$exe" generate --logits -m "$models/tiny1.gguf" --raw -p 'the thing' -o "$work/l.npy" -t 2 $device
    for n in 1 2 3 4 5 6 7 8 9; do # sessions whose tokens are made side by side
        printf '{"id": "%s", "prompt": "%s"}\n' $n "$(head -c $((40 * n)) "$work/prompt")"
    done >"$work/prompts"
    for method in h2o snapkv rkv quest; do
        "$@" "$exe" run -m "$models/tiny6.gguf" --jsonl "$work/prompts" -n 8 --ignore-eos -q -t 3 $device \
            --method $method -B 24 --probes full -o "$work/many/$method" >"$work/out"
    done
    for command in 'trace info' 'trace verify' eviction retention survival size tokens 'size --as sparsity' 'survival --as hazard' \
        'survival --as persistence' 'survival --as intermittency' overlap 'attention --as sparsity' dilution 'size --as kv-size' where \
        'where --as runs' 'tokens --as words' heads 'attention --spread heads'; do
        "$@" "$exe" $command "$work/h2o.kvf" >"$work/out"
    done
    for ext in $outputs; do
        "$@" "$exe" eviction "$work/h2o.kvf" -o "$work/e.$ext"
    done
}

# Figures, the report, draw and previews of what `runs` left.
pictures() { # program, command before it...
    exe=$1
    shift
    for figure in eviction survival heads tokens 'tokens --as words'; do
        "$@" "$exe" $figure "$work/h2o.kvf" -o "$work/p.svg" >"$work/out"
    done
    "$@" "$exe" size --as sparsity "$work/h2o.kvf" -o "$work/p.csv" >"$work/out"
    "$@" "$exe" draw "$work/p.csv" --preview >"$work/out"
    "$@" "$exe" draw "$work/p.csv" --minus "$work/p.csv" -o "$work/p.pdf"
    "$@" "$exe" report "$work/h2o.kvf" "$work/window.kvf" -o "$work/p.html" >"$work/out"
}

sanitizers() { # options of AddressSanitizer, UndefinedBehaviorSanitizer and the search for leaks
    # fontconfig and pango keep caches to the end: not ours to free
    printf 'leak:libfontconfig\nleak:libpango\nleak:libcairo\nleak:libglib\nleak:libgobject\n' >"$work/leaks"
    # gcc 12 puts frames that outlive their function where blocks of AVX-512 are not aligned as it
    # itself assumes: detect_stack_use_after_return stays off.
    # 99: a test of what is refused would take the tools' own status, 1, for a refusal.
    export ASAN_OPTIONS=detect_stack_use_after_return=0:strict_string_checks=1:allocator_may_return_null=1:exitcode=99
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:exitcode=99
    export LSAN_OPTIONS="suppressions=$work/leaks:print_suppressions=0"
    export KVFATE_SLOW=300 # seconds that a figure may take here
}

asan() {
    say "AddressSanitizer and UndefinedBehaviorSanitizer: all tests"
    build build-asan -Db_sanitize=address,undefined -Db_lundef=false
    sanitizers
    # tiny models only: the real one takes many minutes here, and one short run of it says as much
    KVFATE_CACHE=$work meson test -C build-asan --num-processes 2 --timeout-multiplier 8 --print-errorlogs
    if [ -r "${KVFATE_CACHE:-$HOME/.cache/kvfate}/SmolLM2-135M-Instruct.Q4_1.gguf" ]; then
        build-asan/cli/kvfate run -p 'Name three rivers.' -n 4 -q -o "$work/real.kvf"
    fi
    say "the same with the reference kernels"
    KVFATE_CPU_MASK=0 runs build-asan/cli/kvfate build-asan/tests/engine env
    pictures build-asan/cli/kvfate env
}

figures() {
    say "AddressSanitizer and UndefinedBehaviorSanitizer: figures, report, draw, blocks without padding"
    b=build-exact
    suites="heat palette chart curves text"
    targets="cli/kvfate tests/figures/draw_table tests/analyze/write_kvf tests/report/make_report_trace"
    for suite in $suites; do targets="$targets tests/figures/test_$suite"; done
    build $b -Dsimd=false -Db_sanitize=address,undefined -Db_lundef=false
    targets=
    sanitizers
    for suite in $suites; do $b/tests/figures/test_$suite --jobs 1 --quiet; done
    # a grid, a map of heads, a chart, texts, panels
    /usr/bin/python3 tests/figures/test_contract.py $b/cli/kvfate $b/tests/figures/draw_table "$work/pictures" \
        --only eviction,heads-map,survival,tokens,compare
    /usr/bin/python3 tests/figures/test_draw.py $b/cli/kvfate $b/tests/analyze/write_kvf
    /usr/bin/python3 tests/report/test_file.py $b/cli/kvfate $b/tests/report/make_report_trace
}

tsan() {
    say "ThreadSanitizer: pool and two-thread runs"
    build build-tsan -Db_sanitize=thread -Db_lundef=false
    export TSAN_OPTIONS=halt_on_error=1:exitcode=66
    build-tsan/tests/unit/race_json
    build-tsan/tests/unit/race_par # Criterion itself does not start under this tool
    build-tsan/tests/train/race_attention
    build-tsan/tests/format/race_write
    /usr/bin/python3 tests/analyze/test_threads.py build-tsan/cli/kvfate build-tsan/tests/analyze/write_kvf
    outputs="tsv json npz" # fontconfig, which Pango starts in a thread, races with itself
    runs build-tsan/cli/kvfate build-tsan/tests/engine env
    say "ThreadSanitizer: the same runs on the emulated device, whose kernels it does not see"
    device="--device cuda"
    ninja -C build-tsan tests/cuda/kvfate_emulated >"$work/ninja.log"
    runs build-tsan/tests/cuda/kvfate_emulated build-tsan/tests/engine env
    device=
    outputs="tsv json npz png svg pdf"
    say "ThreadSanitizer: figures, without what libraries do on their own"
    printf 'called_from_lib:lib%s\n' fontconfig.so pango-1.0.so pangocairo-1.0.so glib-2.0.so >"$work/races"
    export TSAN_OPTIONS="halt_on_error=1:exitcode=66:ignore_noninstrumented_modules=1:suppressions=$work/races"
    pictures build-tsan/cli/kvfate env
    build-tsan/tests/report/make_report_trace "$work/large.kvf" 6000 6 2 4 1 eg # large enough for threads
    for figure in eviction retention; do build-tsan/cli/kvfate $figure "$work/large.kvf" -o "$work/p.png" >"$work/out"; done
}

valgrind_() {
    say "valgrind: small runs, kernels without AVX-512"
    build build-plain
    for lib in fontconfig pango cairo glib; do # they keep caches to the end: not ours to free
        printf '{\n%s\nMemcheck:Leak\n...\nobj:*lib%s*\n}\n' $lib $lib
    done >"$work/valgrind.supp"
    export KVFATE_CPU_MASK=1
    memcheck="valgrind --quiet --suppressions=$work/valgrind.supp --error-exitcode=99 --leak-check=full \
        --show-leak-kinds=definite --errors-for-leak-kinds=definite"
    runs build-plain/cli/kvfate build-plain/tests/engine $memcheck
    pictures build-plain/cli/kvfate $memcheck
    unset KVFATE_CPU_MASK
}

for part in $parts; do
    case $part in
    asan) asan ;;
    tsan) tsan ;;
    valgrind) valgrind_ ;;
    figures) figures ;;
    *) echo "usage: tests/sanitize.sh [asan] [tsan] [valgrind] [figures]" >&2; exit 2 ;;
    esac
done
say "clean: $parts"
