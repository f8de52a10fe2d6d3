#!/bin/sh
# Prints the instructions of one call of each kernel with AVX2 and with NEON, by emulation, as a
# Markdown table.
#     bench/instructions.sh [NAME]     only kernels whose name contains NAME
# It needs the packages listed at the head of tests/aarch64.sh, which makes build-arm64, and a build
# in ./build.  A call with 256 rows is counted with 16. The emulator has no AVX-VNNI and no AVX-512.
set -eu
cd "$(dirname "$0")/.."
root=${KVFATE_ARM64:-$HOME/.cache/kvfate/arm64}
[ -e build-arm64/build.ninja ] || { echo "run tests/aarch64.sh first: it makes build-arm64"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cc -O2 -shared -fPIC bench/instructions.c -o "$dir/instructions.so"
for build in build build-arm64; do
    ninja -C $build bench/bench_kernels > /dev/null
done
qemu-x86_64 -cpu max -plugin "$dir/instructions.so" build/bench/bench_kernels --count "$@" > "$dir/counts"
qemu-aarch64 -L "$root" -plugin "$dir/instructions.so" build-arm64/bench/bench_kernels --count "$@" >> "$dir/counts"
awk -F '|' '
    { sub(/ 256x1536/, " 16x1536") }
    !($1 in order) { order[$1] = ++n; name[n] = $1 }
    { count[$1, $2] = $3 }
    function number(x) { return x == "" ? "" : x < 1e4 ? x : x < 1e7 ? sprintf("%.0f k", x / 1e3) : sprintf("%.1f M", x / 1e6) }
    END {
        print "| kernel | AVX2 | NEON | NEON with dot products |\n|---|---|---|---|"
        for (i = 1; i <= n; i++) {
            k = name[i]
            dot = k ~ /^matmul_q/ ? number(count[k, "neon-dot"]) : "" # the rest is that of NEON
            printf "| %s | %s | %s | %s |\n", k, number(count[k, "avx2"]), number(count[k, "neon"]), dot
        }
    }' "$dir/counts"
