#!/bin/sh
# Build and run every quick test; the last line is the result.
# usage: ./test.sh [options of 'meson test', such as --suite engine]
set -eu
cd "$(dirname "$0")"
./setup.sh tests
build=${KVFATE_TEST_BUILD:-build-test}
[ -f "$build/build.ninja" ] || meson setup "$build" -Dtests=enabled --werror >"$build.log" 2>&1 || {
    cat "$build.log" >&2
    exit 1
}
rm -f "$build.log"
ninja -C "$build"
status=0
meson test -C "$build" --no-rebuild --print-errorlogs "$@" || status=$?
python3 - "$build/meson-logs/testlog.json" <<'PY' || status=1
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
