#!/bin/sh
# run.sh - builds the CUDA kernels and holds them against the reference on this machine's device.
#
# usage: tests/gpu/run.sh [BUILD]        (build-gpu)
#
# Needs the toolkit (nvcc, compute-sanitizer) and a device; without a device it ends with 77 and says
# so.  Takes some minutes, most of which are the compilation.  compute-sanitizer looks for accesses
# outside of memory and for races in shared memory; where it lacks, the last lines say so.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build-gpu}
if ! nvidia-smi -L 2>/dev/null; then
    echo "run.sh: this machine has no CUDA device: nothing was tested" >&2
    exit 77
fi
[ -e "$build/build.ninja" ] || meson setup "$build" --buildtype=release -Dcuda=enabled >/dev/null
names="products attention prompt step decisions heads scores redundancy reads expected watch train losses pass graph chunks
       session"
# all, for the models that whole runs need
ninja -C "$build" >/dev/null
export KVF_TRAIN="$build/tests/train" KVF_TINY="$build/tests/engine" KVF_TINY_GATES="$build/tests/method"
export KVF_GOLDEN="$PWD/tests/data/golden" KVF_VOCABULARIES="$build/tests/engine/vocabularies"
failed=0
say() { # what, status
    case $2 in
    0) echo "| $1 | as the reference |" ;;
    124) echo "| $1 | not through in $limit s |" ;;
    *)
        echo "| $1 | FAILED |"
        failed=1
        ;;
    esac
}
# side_by_side SUFFIX COMMAND: COMMAND before each test, all at once; what is told goes to files
side_by_side() {
    for name in $names; do
        (
            status=0
            timeout "$limit" $2 "$build/tests/gpu/test_gpu_$name" --jobs 1 >"$build/gpu_$name$1.log" 2>&1 || status=$?
            echo $status >"$build/gpu_$name$1.status"
        ) &
    done
    wait
    for name in $names; do
        say "$name${1:+, ${1#.}}" "$(cat "$build/gpu_$name$1.status")"
    done
}
echo "| test | result |"
echo "|---|---|"
limit=180
side_by_side "" ""
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        side_by_side ".$tool" "compute-sanitizer --tool $tool --target-processes all --error-exitcode 1"
    done
else
    echo "compute-sanitizer is not installed: it was left out"
fi
exit $failed
