#!/bin/sh
# kvfate on aarch64, by emulation: the whole is compiled with NEON, and its tests of kernels pass on a processor
# with dot products of bytes and on one without.  What kernels write, and the trace of a whole run, have the bytes of AVX2.
#     tests/aarch64.sh
# It is no part of the normal suites.  It needs, on Debian 12 as root:
#     apt-get install gcc-aarch64-linux-gnu qemu-user mmdebstrap
# and the libraries of that machine in a folder, KVFATE_ARM64 (default: ~/.cache/kvfate/arm64):
#     mmdebstrap --variant=extract --architectures=arm64 --include=libc6-dev,libgcc-12-dev,libcairo2-dev,libpango1.0-dev,libharfbuzz-dev,libpng-dev,zlib1g-dev,libcjson-dev,libzstd-dev,libminizip-dev,libsqlite3-dev,libxxhash-dev,libpcre2-dev,libutf8proc-dev,liblapack3 bookworm FOLDER
# The build goes to build-arm64 and is kept.
set -eu
cd "$(dirname "$0")/.."
root=${KVFATE_ARM64:-$HOME/.cache/kvfate/arm64}
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool > /dev/null || { echo "skipped: $tool is not there; the head of tests/aarch64.sh says what to install"; exit 77; }
done
[ -e "$root/usr/lib/aarch64-linux-gnu/libpango-1.0.so" ] || { echo "skipped: no libraries in $root; the head of tests/aarch64.sh says how to get them"; exit 77; }
build=build-arm64
if [ ! -e $build/build.ninja ]; then
    mkdir -p $build
    cat > $build/machine.ini <<END
[binaries]
c = ['aarch64-linux-gnu-gcc', '--sysroot=$root']
cpp = ['aarch64-linux-gnu-g++', '--sysroot=$root']
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '$root']
[properties]
sys_root = '$root'
pkg_config_libdir = '$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
    meson setup $build --cross-file $build/machine.ini -Dtests=enabled -Ddebug=false --werror -Dcuda=disabled > /dev/null
fi

# ---- kernels, with all that the emulated processor has, and on one without dot products
names="attention attention_ints attention_pages elementwise matmul quant_rows row_cuts rows window words train_kernels"
programs=
for name in $names; do programs="$programs tests/kernels/test_$name"; done
ninja -C $build $programs tests/kernels/all_bits > /dev/null
for cpu in max cortex-a53; do
    for program in $programs; do
        qemu-aarch64 -cpu $cpu -L "$root" $build/$program > "$build/log" || { cat "$build/log"; exit 1; }
        echo "$cpu: ${program##*/}: $(cat "$build/log")"
    done
done

# ---- the same bits: NEON, NEON with dot products, and AVX2 where this machine has it
for flags in 0 1 3; do
    qemu-aarch64 -L "$root" $build/tests/kernels/all_bits $flags > "$build/bits.$flags"
done
cmp "$build/bits.1" "$build/bits.3"
cmp -s "$build/bits.0" "$build/bits.1" && { echo "NEON was not used"; exit 1; }
ninja -C build tests/kernels/all_bits > /dev/null
if grep -q avx2 /proc/cpuinfo; then
    build/tests/kernels/all_bits 1 | cmp - "$build/bits.1"
    echo "$(wc -l < "$build/bits.1") hashes of what kernels write are those of AVX2"
fi

# ---- a whole run: the same trace
model=${KVFATE_CACHE:-$HOME/.cache/kvfate}/SmolLM2-135M-Instruct.Q4_1.gguf
if [ -e "$model" ] && grep -q avx2 /proc/cpuinfo; then
    ninja -C $build cli/kvfate > /dev/null
    ninja -C build cli/kvfate > /dev/null
    set -- run -m "$model" --raw -p "The capital of France is" -n 4 --method h2o -B 6 -t 1 -o
    KVFATE_CPU_MASK=1 build/cli/kvfate "$@" "$build/here.kvf" > /dev/null 2>&1
    qemu-aarch64 -L "$root" $build/cli/kvfate "$@" "$build/there.kvf" > /dev/null 2>&1
    cmp "$build/here.kvf" "$build/there.kvf"
    echo "a run of h2o has the trace of AVX2: $(wc -c < "$build/there.kvf") bytes"
fi
