#!/bin/sh
# run.sh - builds the CUDA kernels and holds them against the reference on this machine's device.
#
# usage: tests/gpu/run.sh [-e] [-t SECONDS] [-o PARTS] [-n NAMES] [BUILD]        (540, all, all, build-gpu)
#
# Needs the toolkit (nvcc, compute-sanitizer) and a device; without a device it ends with 77 and says
# so.  What cannot be built here is taken as it lies in BUILD.  After the build it takes SECONDS at
# most, so that it can be the whole of a call that is cut off.  Its parts, in their order:
#   first      memcheck of the smallest runs of graphs and sessions
#   tests      all programs of tests, side by side
#   failures   no driver, no memory, a lost device, a full disk: what the program says and keeps
#   memcheck   all programs again, as far as time goes
#   racecheck  the same
# -o and -n choose parts and programs, with commas between; what is left of the time is dealt out to
# the checkers that are still to come.  The end is a table of all parts, what failed in them, and how
# many graphs were built for how many shapes, whatever happened before; logs lie in BUILD/gpu-logs.
# -e: the tests of the emulated device instead (BUILD: build), to see this file run.
set -u
cd "$(dirname "$0")/../.."
emulated=
seconds=540
parts="first tests failures memcheck racecheck"
names=
while getopts het:o:n: option; do
    case $option in
    e) emulated=1 ;;
    h)
        sed -n '2,/^set/ s/^# \{0,1\}//p' tests/gpu/run.sh
        exit 0
        ;;
    t) seconds=$OPTARG ;;
    o) parts=$(echo "$OPTARG" | tr , ' ') ;;
    n) names=$(echo "$OPTARG" | tr , ' ') ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
for part in $parts; do
    case $part in
    first | tests | failures | memcheck | racecheck) ;;
    *)
        echo "run.sh: no part '$part': first, tests, failures, memcheck, racecheck" >&2
        exit 2
        ;;
    esac
done
kind=gpu cuda=enabled build=build-gpu
[ -z "$emulated" ] || kind=cuda cuda=disabled build=build
build=${1:-$build}
if [ -z "$emulated" ] && ! nvidia-smi -L 2>/dev/null; then
    echo "run.sh: this machine has no CUDA device: nothing was tested" >&2
    exit 77
fi
tests="$build/tests/$kind/test_${kind}_"

# ---- the build

make() {
    [ -e "$build/build.ninja" ] || meson setup "$build" --buildtype=release -Dcuda=$cuda
    ninja -C "$build" all ${emulated:+tests/cuda/kvfate_emulated} # all, for the models that whole runs need
}
mkdir -p "$build"
logs="$build/gpu-logs"
rm -rf "$logs"
mkdir -p "$logs"
begin=$(date +%s)
if command -v ninja >/dev/null && make >"$logs/build.log" 2>&1; then
    built="| the build | made here, $(($(date +%s) - begin)) s |"
elif [ -x "${tests}graph" ]; then
    built="| the build | cannot be made here: what lies in $build is taken |"
else
    tail -5 "$logs/build.log" 2>/dev/null >&2
    echo "run.sh: $build has no tests, and they cannot be built here (nvcc, meson, ninja): nothing was tested" >&2
    exit 1
fi
export KVF_TRAIN="$build/tests/train" KVF_TINY="$build/tests/engine" KVF_TINY_GATES="$build/tests/method"
export KVF_GOLDEN="$PWD/tests/data/golden" KVF_VOCABULARIES="$build/tests/engine/vocabularies"
if [ -z "$names" ]; then
    for test in "$tests"*; do
        [ ! -f "$test" ] || names="$names ${test#"$tests"}"
    done
fi

# ---- parts

failed=0
begin=$(date +%s)
: >"$logs/table"
row() { # what, how it went
    echo "| $1 | $2 |" >>"$logs/table"
}
left() {
    echo $((begin + seconds - $(date +%s)))
}
why() { # log: the first lines that say what failed
    grep -hE '\[FAIL\]|\[TIMEOUT\]|CRASH|========= (Error|Invalid|Race|Uninit|Program hit|ERROR SUMMARY)|emulation:|Assertion Failed|error' "$1" |
        grep -v 'ERROR SUMMARY: 0' | head -6 | sed 's/^/    /'
}
# tests_of LOG: how many passed, of how many
tests_of() {
    sed -n 's/.*Synthesis: Tested: .\{0,9\}\b\([0-9][0-9]*\).*Passing: .\{0,9\}\b\([0-9][0-9]*\).*/\2 \1/p' "$1" | tail -1
}
# run SUFFIX LIMIT BEFORE NAME [FILTER [PIECE]]: tests of a program with a command before it, into a log
run() {
    status=0
    from=$(date +%s)
    log="$logs/$4$1${6:+.$6}"
    timeout -k 5 "$2" $3 "$tests$4" --jobs 1 ${5:+--filter "$5"} >"$log.log" 2>&1 || status=$?
    echo "$status $(($(date +%s) - from))" >"$log.status"
}
# tell SUFFIX NAME: how the pieces of a program went, as one
tell() {
    suffix=$1 name=$2 passed=0 all=0 took=0 worst=0 cut=
    what="$name${suffix:+, ${suffix#.}}"
    for log in "$logs/$name$suffix.log" "$logs/$name$suffix".[0-9]*.log; do
        [ -e "$log" ] || continue
        read -r status time <"${log%.log}.status" || status=1 time=0
        set -- $(tests_of "$log")
        passed=$((passed + ${1:-0})) all=$((all + ${2:-0}))
        [ "$time" -lt "$took" ] || took=$time
        # A checker can slow a test down beyond the time that the test itself gives.
        grep -q 'Timed out' "$log" && ! grep -q 'Assertion Failed' "$log" && status=124
        case $status in
        0) ;;
        124 | 137) cut=1 ;;
        *) worst=$status && { echo "$what:" && why "$log"; } >>"$logs/failures" ;;
        esac
    done
    if [ "$worst" -ne 0 ]; then
        row "$what" "FAILED ($worst): $passed of $all tests, $took s"
        failed=1
    elif [ -n "$cut" ]; then
        row "$what" "not through in $took s: so far $passed tests as the reference"
    elif [ "$all" -eq 0 ]; then
        row "$what" "SKIPPED: $(grep -h 'SKIP' "$logs/$name$suffix"*.log | head -1 | cut -c1-120)"
    else
        row "$what" "as the reference: $passed of $all tests, $took s"
    fi
}
# pieces NAME: the tests of a program that takes long under a checker, which then run one by one
pieces() {
    case $1 in
    session | chunks | graph | decisions | pass) "$tests$1" --list | sed -n 's/.*── \([a-z_0-9]*\).*/\1/p' ;;
    esac
}
# side_by_side SUFFIX LIMIT BEFORE: all tests at once
side_by_side() {
    limit=$(left)
    [ "$limit" -lt "$2" ] || limit=$2
    if [ "$limit" -lt 20 ]; then
        row "all tests${1:+, ${1#.}}" "left out: no time is left"
        return
    fi
    for name in $names; do
        piece=0
        for test in ${3:+$(pieces "$name")}; do
            piece=$((piece + 1))
            run "$1" "$limit" "$3" "$name" "*/$test" $piece &
        done
        [ $piece -gt 0 ] || run "$1" "$limit" "$3" "$name" &
    done
    wait
    for name in $names; do
        tell "$1" "$name"
    done
}
# fail: what the program says and keeps when a device fails, a row for each kind of failure
fail() {
    limit=$(left)
    [ "$limit" -lt 240 ] || limit=240
    if [ "$limit" -lt 60 ]; then
        row "failures" "left out: no time is left"
        return
    fi
    program="$build/cli/kvfate" tools="$build/tests/gpu" status=0
    [ -z "$emulated" ] || program="$build/tests/cuda/kvfate_emulated" tools=
    timeout -k 5 "$limit" python3 tests/gpu/failures.py "$program" "$KVF_TINY" $tools >"$logs/failures.log" 2>&1 || status=$?
    grep '^|' "$logs/failures.log" >>"$logs/table"
    case $status in
    0) ;;
    124 | 137) row "failures" "not through in $limit s" ;;
    *)
        failed=1
        row "failures" "FAILED: $(tail -1 "$logs/failures.log")"
        { echo "failures:" && grep -v '^|' "$logs/failures.log" | head -12 | sed 's/^/    /'; } >>"$logs/failures"
        ;;
    esac
}
asked() { # whether a part is
    case " $parts " in *" $1 "*) ;; *) return 1 ;; esac
}
finish() {
    trap - EXIT INT TERM
    echo
    echo "| part | result |"
    echo "|---|---|"
    echo "$built"
    cat "$logs/table"
    grep -h '^graphs:' "$logs/graph.log" 2>/dev/null
    [ ! -s "$logs/failures" ] || cat "$logs/failures"
    exit $failed
}
trap 'failed=1; row "the rest" "broken off"; finish' INT TERM
trap finish EXIT

# What stands in the way is told first.
if [ -z "$emulated" ]; then
    row "driver" "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"
    cublas=$(ldconfig -p 2>/dev/null | sed -n 's/.*\(libcublas\.so\.[0-9]*\) .*=> \(.*\)/\2/p' | head -1)
    row "cuBLAS" "${cublas:-not known to the linker: prompts are multiplied by kernels of ours; LD_LIBRARY_PATH may name its folder}"
fi
# A test that skips before it asks for a device is no finding.
check="compute-sanitizer --target-processes all --error-exitcode 1 --require-cuda-init no"
looks=
if [ -n "$emulated" ]; then
    check=
elif ! asked first && ! asked memcheck && ! asked racecheck; then
    : # nobody asks for it
elif command -v compute-sanitizer >/dev/null; then
    looks=1
    run .first 60 "$check --tool memcheck" graph 'graph/replays*'
    if grep -q 'not supported' "$logs/graph.first.log"; then
        looks=
        row "compute-sanitizer" "refuses this machine: it was left out"
    else
        tell .first graph
    fi
else
    row "compute-sanitizer" "is not installed: it was left out"
fi
if asked first && [ -n "$looks$emulated" ]; then
    run .small 60 "${check:+$check --tool memcheck}" graph 'graph/@(shapes_change|what_is*|steps_are*)' &
    run .smallest 60 "${check:+$check --tool memcheck}" session 'session/forks*' &
    run .smallest 60 "${check:+$check --tool memcheck}" together 'together/bits*' &
    wait
    tell .small graph
    tell .smallest session
    tell .smallest together
fi
! asked tests || side_by_side "" 180 ""
! asked failures || fail
if [ -n "$looks" ] && asked memcheck; then
    share=$(left)
    ! asked racecheck || share=$((share / 2))
    side_by_side .memcheck "$share" "$check --tool memcheck"
fi
if [ -n "$looks" ] && asked racecheck; then
    side_by_side .racecheck "$(left)" "$check --tool racecheck"
fi
