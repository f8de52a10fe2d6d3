#!/bin/sh
# run.sh - measures kernels and complete runs on this machine's device, and compares them with its
# limits.
#
# usage: bench/gpu/run.sh [-t SECONDS] [BUILD [MODELS]]        (540, build-gpu, BUILD/models)
#
# It uses random numbers in the shapes of real models.  It measures decode steps with the number of
# built graphs, then complete runs of the program (bench/gpu/runs.py), then kernels.  The models are
# made in MODELS, about 10 GB. It needs a device, and the toolkit unless BUILD exists already.
# Without a toolkit it uses the existing build.  Without a device it ends with 77 and prints only
# the bounds (bench/gpu/roofline.py). After the build it takes at most SECONDS. Each part has a time
# limit, a failing part does not stop other parts, and a table of their results comes last.
set -u
cd "$(dirname "$0")/../.."
seconds=540
while getopts ht: option; do
    case $option in
    h)
        sed -n '2,/^set/ s/^# \{0,1\}//p' bench/gpu/run.sh
        exit 0
        ;;
    t) seconds=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
build=${1:-build-gpu}
models=${2:-$build/models}
cards=$(nvidia-smi -L 2>/dev/null) || cards=
if [ -z "$cards" ]; then
    echo "run.sh: this machine has no CUDA device: these are the bounds of an H200, nothing ran" >&2
    bench/gpu/roofline.py
    exit 77
fi
echo "$cards"
make() {
    [ -e "$build/build.ninja" ] || meson setup "$build" --buildtype=release -Dcuda=enabled
    ninja -C "$build" bench/bench_gpu bench/bench_steps cli/kvfate
}
mkdir -p "$build"
made=
if command -v ninja >/dev/null && make >"$build/bench-build.log" 2>&1; then
    made="made here"
elif [ -x "$build/bench/bench_steps" ]; then
    made="cannot be made here: what lies in $build is taken"
else
    tail -5 "$build/bench-build.log" 2>/dev/null >&2
    echo "run.sh: $build has no programs, and they cannot be built here (nvcc, meson, ninja): nothing ran" >&2
    exit 1
fi
case $cards in # GB/s, TFLOP/s of dense bf16
*H200*) bandwidth=4800 peak=989 ;;
*H100*PCIe*) bandwidth=2000 peak=756 ;;
*H100*) bandwidth=3350 peak=989 ;;
*A100*) bandwidth=2000 peak=312 ;;
*) bandwidth=4800 peak=989 ;;
esac

begin=$(date +%s)
table="| the build | $made |"
failed=0
part() { # what, SECONDS at most, command
    what=$1
    limit=$((begin + seconds - $(date +%s)))
    [ "$limit" -lt "$2" ] || limit=$2
    shift 2
    how="left out: no time is left"
    if [ "$limit" -gt 10 ]; then
        from=$(date +%s) status=0
        timeout -k 5 "$limit" "$@" || status=$?
        how="went, $(($(date +%s) - from)) s"
        [ $status -ne 124 ] || how="not through in $limit s"
        [ $status -eq 0 ] || [ $status -eq 124 ] || how="FAILED ($status), $(($(date +%s) - from)) s"
        [ $status -eq 0 ] || failed=1
        echo
    fi
    table="$table
| $what | $how |"
}
finish() {
    trap - EXIT INT TERM
    printf '\n| part | how it went |\n|---|---|\n%s\n' "$table"
    exit $failed
}
trap 'failed=1; finish' INT TERM
trap finish EXIT
python=python3
"$python" -c 'import numpy' 2>/dev/null || python=/usr/bin/python3 # Debian's has NumPy
part "whole steps" 90 "$build/bench/bench_steps" $bandwidth
part "whole runs" $((seconds - 150)) "$python" bench/gpu/runs.py --kvfate "$build/cli/kvfate" --models "$models" --limit $((seconds - 160)) --only \
    decode/SmolLM2-135M,decode/Qwen3-4B,prefill,train/SmolLM2-135M-2048,sparse/SmolLM2-135M-32768,survival/SmolLM2-135M,sparse/SmolLM2-135M-131072,trimkv/16378x4
part "kernels" 120 "$build/bench/bench_gpu" $bandwidth $peak
