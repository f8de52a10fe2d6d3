#!/bin/sh
# run.sh - how fast kernels and whole runs are on this machine's device, beside what it could do.
#
# usage: bench/gpu/run.sh [BUILD [MODELS]]        (build-gpu, BUILD/models)
#
# Random numbers in the shapes of real models: kernels, whole steps, then whole runs of the program
# (bench/gpu/runs.py, which takes names of more) with models that are made in MODELS, some 10 GB.  Needs
# a device, and the toolkit unless BUILD was built already: without ninja it is taken as it is.
# Without a device it ends with 77 and prints the bounds alone (bench/gpu/roofline.py).  Takes at
# most ten minutes.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build-gpu}
models=${2:-$build/models}
begin=$(date +%s)
if ! nvidia-smi -L 2>/dev/null; then
    echo "run.sh: this machine has no CUDA device: these are the bounds of an H200, nothing ran" >&2
    bench/gpu/roofline.py
    exit 77
fi
if command -v ninja >/dev/null; then
    [ -e "$build/build.ninja" ] || meson setup "$build" --buildtype=release -Dcuda=enabled >/dev/null
    ninja -C "$build" bench/bench_gpu bench/bench_steps cli/kvfate
    begin=$(date +%s)
fi
"$build/bench/bench_gpu"
echo
"$build/bench/bench_steps"
echo
python=python3
"$python" -c 'import numpy' 2>/dev/null || python=/usr/bin/python3 # Debian's has NumPy
"$python" bench/gpu/runs.py --kvfate "$build/cli/kvfate" --models "$models" \
    --limit $((570 - $(date +%s) + begin)) --only \
    decode/SmolLM2-135M,decode/Qwen3-4B,prefill,train/SmolLM2-135M-2048,sparse/SmolLM2-135M-32768,survival/SmolLM2-135M,sparse/SmolLM2-135M-131072,trimkv/16378x4
