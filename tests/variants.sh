#!/bin/sh
# Tests the builds that differ from that of ./test.sh: clang, and no SIMD kernels.
# usage: tests/variants.sh build | test       build: compile everything with clang.  test: run the suites that see a difference.
set -eu
cd "$(dirname "$0")/.."

# configure BUILD [options of meson]
configure() {
    [ -f "$1/build.ninja" ] || meson setup "$@" -Dtests=enabled -Dcuda=disabled -Ddebug=false --werror >"$1.log" 2>&1 || {
        cat "$1.log" >&2
        exit 1
    }
    rm -f "$1.log"
}
# quick BUILD SUITES: meson builds the programs that these suites need
quick() {
    meson test -C "$1" --setup quick --no-suite slow --no-suite long --print-errorlogs $2
}
# Debug information is left out, because Debian 12's valgrind cannot read that of clang 14.  C++ is left out,
# because gcc builds the emulated device.
CC=clang CXX=false configure build-ci-clang -Doptimization=0
case ${1:-} in
build) ninja -C build-ci-clang ;;
test)
    ninja -C build-ci-clang
    quick build-ci-clang '--suite unit --suite format --suite kernels --suite method'
    configure build-ci-plain -Dsimd=false -Doptimization=1
    quick build-ci-plain '--suite kernels --suite method'
    ;;
*)
    echo "usage: tests/variants.sh build | test" >&2
    exit 2
    ;;
esac
