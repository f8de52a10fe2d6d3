#!/bin/sh
# run.sh - how fast the CUDA kernels are on this machine's device, beside what it could do at most.
#
# usage: bench/gpu/run.sh [BUILD]        (build-gpu)
#
# Random numbers in the shapes of real models; needs the toolkit and a device, no model.  Without a
# device it ends with 77 and prints the bounds alone (bench/gpu/roofline.py).  Takes some minutes.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build-gpu}
if ! nvidia-smi -L 2>/dev/null; then
    echo "run.sh: this machine has no CUDA device: these are the bounds of an H200, nothing ran" >&2
    bench/gpu/roofline.py
    exit 77
fi
[ -e "$build/build.ninja" ] || meson setup "$build" --buildtype=release -Dcuda=enabled >/dev/null
ninja -C "$build" bench/bench_gpu bench/bench_steps
"$build/bench/bench_gpu"
echo
"$build/bench/bench_steps"
