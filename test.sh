#!/bin/sh
# Build and run the tests; the last line is the result.
# usage: ./test.sh [quick | long] [options of 'meson test', such as --suite engine]
#   without a word: what every change must pass; quick: for the edit loop, without tests of several seconds;
#   long: the same tests with more cases, kills and sizes, and those of the suite long
set -eu
cd "$(dirname "$0")"
setup=normal
case ${1:-} in quick | long) setup=$1 && shift ;; esac
./setup.sh tests
build=${KVFATE_TEST_BUILD:-build-test}
# Kernels for CUDA are tested on an emulated device: for one real kind it is seen that nvcc takes them,
# which is quick where it need not make them fast.
[ -f "$build/build.ninja" ] || meson setup "$build" -Dtests=enabled -Ddebug=false -Dnvcc_archs=90 -Dnvcc_flags=-Xcicc,-O1,-Xptxas,-O0 --werror >"$build.log" 2>&1 || {
    cat "$build.log" >&2
    exit 1
}
rm -f "$build.log"
ninja -C "$build"
status=0
# Two more than there are cores: tests wait for a browser, a signal or the disk.
meson test -C "$build" --num-processes $(($(nproc) + 2)) --setup "$setup" --print-errorlogs "$@" || status=$?
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
