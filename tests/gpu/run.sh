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
names="products attention decisions heads scores redundancy reads expected watch train losses pass graph session"
# all, for the models that whole runs need
ninja -C "$build" >/dev/null
export KVF_TRAIN="$build/tests/train" KVF_TINY="$build/tests/engine" KVF_TINY_GATES="$build/tests/method"
export KVF_GOLDEN="$PWD/tests/data/golden" KVF_VOCABULARIES="$build/tests/engine/vocabularies"
failed=0
say() { # what, status
    [ "$2" -eq 0 ] && echo "| $1 | as the reference |" || { echo "| $1 | FAILED |"; failed=1; }
}
echo "| test | result |"
echo "|---|---|"
for name in $names; do
    test="$build/tests/gpu/test_gpu_$name"
    status=0
    "$test" --jobs 1 >"$build/gpu_$name.log" 2>&1 || status=$?
    say "$name" $status
    for tool in memcheck racecheck; do
        command -v compute-sanitizer >/dev/null || continue
        status=0
        timeout 100 compute-sanitizer --tool $tool --target-processes all --error-exitcode 1 \
            "$test" --jobs 1 >"$build/gpu_$name.$tool.log" 2>&1 || status=$?
        say "$name, $tool" $status
    done
done
command -v compute-sanitizer >/dev/null || echo "compute-sanitizer is not installed: it was left out"
exit $failed
