#!/bin/sh
# The trace library on a big-endian machine: s390x, by emulation.  What it writes has the bytes that it
# has here, what it reads has the same values, and its tests pass.
#     tests/big_endian.sh [TRIPS]      default: 200 random traces
# It is no part of the normal suites.  It needs a build in ./build and, as root on Debian 12:
#     dpkg --add-architecture s390x && apt-get update
#     apt-get install gcc-s390x-linux-gnu libc6-dev-s390x-cross qemu-user libzstd-dev:s390x libxxhash-dev:s390x
# Criterion does not exist for this machine; tests/format/bare has what these tests use of it.  Left out are
# tests of faults and of several processes (test_faults.c, test_unfinished.c), which hold no bytes to compare.
set -eu
cd "$(dirname "$0")/.."
trips=${1:-200}
cross=s390x-linux-gnu-gcc
libs=/usr/lib/s390x-linux-gnu
for tool in $cross qemu-s390x; do
    command -v $tool > /dev/null || { echo "skipped: $tool is not there; the head of tests/big_endian.sh says what to install"; exit 77; }
done
for lib in libzstd.so libxxhash.so; do
    [ -e $libs/$lib ] || { echo "skipped: $libs/$lib is not there; the head of tests/big_endian.sh says what to install"; exit 77; }
done
[ -x build/tests/format/trips ] || { echo "build/tests/format/trips is not there: build first"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export TMPDIR="$dir"

compile() { # output, more sources and options
    out=$1
    shift
    $cross -std=c11 -O2 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Wall -Wextra -Werror -Wno-missing-field-initializers \
        -Wno-unused-function -Wno-unused-parameter -Wno-unused-variable -Itests/format/bare -I. -Ibase/include -Ilibtrace/include -Ibuild/libtrace/include \
        "$@" "$dir/libkvftrace.a" -L$libs -lzstd -lxxhash -lm -pthread -o "$dir/$out"
}

# ---- the library, and two programs
mkdir "$dir/o"
for source in libtrace/*.c base/buf.c base/err.c base/mem.c base/os_linux.c base/parts.c base/replace.c base/utf8.c base/rng.c; do
    $cross -std=c11 -O2 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Wall -Wextra -Werror -Wno-missing-field-initializers \
        -I. -Ibase/include -Ilibtrace/include -Ibuild/libtrace/include -c "$source" -o "$dir/o/$(basename "$source" .c).o"
done
s390x-linux-gnu-ar rcs "$dir/libkvftrace.a" "$dir"/o/*.o
compile trips tests/format/trips.c
compile write_dump tests/format/write_dump.c
compile race_write tests/format/race_write.c tests/format/tiny.c

# ---- the same bytes
build/tests/format/write_dump "$dir/here.kvf"
qemu-s390x "$dir/write_dump" "$dir/there.kvf"
cmp "$dir/here.kvf" "$dir/there.kvf"
/usr/bin/python3 tests/format/trips.py build/tests/format/trips --count "$trips" --golden . --keep "$dir/here"
/usr/bin/python3 tests/format/trips.py --count "$trips" --golden . --keep "$dir/there" -- qemu-s390x "$dir/trips"
cmp "$dir/here/golden.out" "$dir/there/golden.out"
same=0
for file in "$dir"/here/c-*; do
    cmp "$file" "$dir/there/${file##*/}"
    same=$((same + 1))
done
echo "$same files that the library wrote here and there are the same"

# ---- the tests
qemu-s390x "$dir/race_write" && echo "race_write passed"
for name in blob chain codec copy digest intervals limits map roundtrip tail hostile work damage; do
    calls=$(sed -n 's/^Test(\([a-z_]*\), \([a-z0-9_]*\).*/    failed |= bare_run("\1_\2", \1_\2);/p' "tests/format/test_$name.c")
    printf '#include "tests/format/test_%s.c"\nint main(void)\n{\n    int failed = 0;\n%s\n    return failed;\n}\n' "$name" "$calls" > "$dir/main.c"
    compile "test_$name" "$dir/main.c" tests/format/tiny.c -Itests/format
    KVFATE_TESTS=quick qemu-s390x "$dir/test_$name"
    echo "test_$name: $(printf '%s\n' "$calls" | wc -l) tests passed"
done
