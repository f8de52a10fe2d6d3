#!/bin/sh
# kvfate's rooms of C alone with musl instead of glibc: base, libtrace, and the kernels with their vectors are
# compiled, and the tests of traces and of kernels pass.
#     tests/musl.sh
# It is no part of the normal suites.  It needs a build in ./build and, on Debian, as root:
#     apt-get install musl-tools
# Debian has no libraries made with musl: of Zstandard and xxHash their archives are linked, which need
# of glibc only the two functions that this script gives them.  tests/format/bare has what these tests use of Criterion.
set -eu
cd "$(dirname "$0")/.."
command -v musl-gcc > /dev/null || { echo "skipped: musl-gcc is not there; the head of tests/musl.sh says what to install"; exit 77; }
[ -e build/libtrace/include/kvf/version.h ] || { echo "build/libtrace/include/kvf/version.h is not there: build first"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export TMPDIR="$dir"
machine=$(uname -m)

compile() {
    musl-gcc -std=c11 -O2 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off -fno-math-errno \
        -DHAVE_SIMD_X86=$x86 -DHAVE_SIMD_ARM=0 -DHAVE_AVXVNNI=0 -DHAVE_AMX=$x86 -DKERNELS_VNNI=0 \
        -I. -Ibase/include -Ilibtrace/include -Ibuild/libtrace/include -idirafter /usr/include -idirafter "/usr/include/$machine-linux-gnu" "$@"
}
x86=0
[ "$machine" = x86_64 ] && x86=1
flags_avx2='-mavx2 -mfma -mf16c -DKERNELS_AVX512=0'
flags_avx512="-mavx2 -mfma -mf16c -DKERNELS_AVX512=1 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni"
flags_amx="$flags_avx512 -mamx-tile -mamx-int8"

# ---- every file of these rooms; what has libraries of its own is compiled and not linked
mkdir "$dir/linked" "$dir/other"
for source in base/*.c libtrace/*.c engine/kernels/*.c; do
    case $source in
    base/os_posix.c) continue ;;
    base/json.c | base/table*.c | base/opt.c | base/rng.c) to=other ;;
    *) to=linked ;;
    esac
    compile -c "$source" -o "$dir/$to/$(echo "$source" | tr / _).o"
done
for source in engine/kernels/vector/*.c engine/kernels/x86/*.c; do
    [ $x86 = 1 ] || continue
    for set in avx2 avx512 amx; do
        case $set:$source in
        avx512:*/matmul_f.c | avx512:*/row_cuts_narrow.c | avx512:*/matmul_bytes.c | avx512:*avx2.c | avx2:*avx512.c) continue ;;
        amx:*/matmul_amx.c) ;;
        amx:* | *:*/matmul_amx.c) continue ;;
        esac
        eval "flags=\$flags_$set"
        compile $flags -c "$source" -o "$dir/linked/$set$(echo "$source" | tr / _).o"
    done
done
cat > "$dir/glibc.c" <<'END'
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
void *__memcpy_chk(void *to, const void *from, size_t n, size_t room);
void *__memcpy_chk(void *to, const void *from, size_t n, size_t room)
{
    (void)room;
    return memcpy(to, from, n);
}
int __fprintf_chk(FILE *f, int flag, const char *format, ...);
int __fprintf_chk(FILE *f, int flag, const char *format, ...)
{
    va_list args;
    (void)flag;
    va_start(args, format);
    int n = vfprintf(f, format, args);
    va_end(args);
    return n;
}
END
compile -c "$dir/glibc.c" -o "$dir/glibc.o"
ar rcs "$dir/libkvf.a" "$dir"/linked/*.o "$dir"/other/base_rng.c.o
echo "$(ls "$dir"/linked "$dir"/other | wc -l) files compiled"
libs=/usr/lib/$machine-linux-gnu
run() { # name, sources and options
    name=$1
    shift
    compile -static -Itests/format/bare -Wno-unused-function -Wno-unused-parameter -Wno-unused-variable "$@" tests/format/bare/main.c \
        "$dir/glibc.o" "$dir/libkvf.a" "$libs/libzstd.a" "$libs/libxxhash.a" -lm -pthread -o "$dir/$name"
    KVFATE_TESTS=quick "$dir/$name" > "$dir/log" 2>&1 || { cat "$dir/log"; echo "$name failed"; exit 1; }
    echo "$name: $(tail -n 1 "$dir/log")"
}

# ---- the tests
for name in blob chain codec copy digest intervals limits map roundtrip tail hostile work damage; do
    run "test_$name" "tests/format/test_$name.c" tests/format/tiny.c -Itests/format
done
for name in attention elementwise matmul row_cuts rows window train; do
    run "test_$name" "tests/kernels/test_$name.c"
done
