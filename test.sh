#!/bin/sh
# Build and run the tests; the last line is the result.
# usage: ./test.sh [quick | full | long] [options of 'meson test', such as --suite engine]
#   without a word: what every change must pass, in about 5 minutes on two cores
#   quick: the same tests with fewer cases
#   full:  also the suites slow (tests of several seconds) and cuda (the emulated CUDA device)
#   long:  more cases, kills and sizes, all suites (also long),
#          and builds with clang, without SIMD kernels, and of CUDA kernels if nvcc is found
set -eu
cd "$(dirname "$0")"
setup=normal
case ${1:-} in quick | full | long) setup=$1 && shift ;; esac
./setup.sh tests
build=${KVFATE_TEST_BUILD:-build-test}

# configure BUILD [options of meson]
configure() {
    [ -f "$1/build.ninja" ] || meson setup "$@" -Dtests=enabled -Ddebug=false --werror >"$1.log" 2>&1 || {
        cat "$1.log" >&2
        exit 1
    }
    rm -f "$1.log"
}
configure "$build"
# meson test builds only what the chosen tests need. The emulated device is not needed without the suite cuda.
status=0
# Two more than there are cores: tests wait for a browser, a signal or the disk.
meson test -C "$build" --num-processes $(($(nproc) + 2)) --setup "$setup" --print-errorlogs "$@" || status=$?
if [ $setup = long ] && [ $# = 0 ]; then
    tests/variants.sh test || status=$?
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    if [ -x "$nvcc" ]; then # to see that it compiles the kernels; it does so quickly if they may be slow
        configure "$build-nvcc" -Dcuda=enabled -Dnvcc_archs=90 -Dnvcc_flags=-Xcicc,-O1,-Xptxas,-O0
        ninja -C "$build-nvcc" cli/kvfate || status=$?
    fi
fi
python3 - "$build/meson-logs/testlog${setup:+-$setup}.json" <<'PY' || status=1
import collections, json, sys
with open(sys.argv[1]) as log:
    count = collections.Counter(json.loads(line)["result"] for line in log)
passed = count.pop("OK", 0) + count.pop("EXPECTEDFAIL", 0)
skipped = count.pop("SKIP", 0)
failed = sum(count.values())
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed > 0)
PY
exit $status
