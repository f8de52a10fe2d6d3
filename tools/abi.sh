#!/bin/sh
# Compares the interface of libkvftrace with that of the last release.
# usage: tools/abi.sh [TAG]      (default: the newest tag v* that is an ancestor of HEAD)
# It builds the library of both versions, with debug information, and runs abidiff (Debian: abigail-tools) on them.
# Status: 0 compatible, 1 a function or type changed or was removed, 2 a failure, 77 nothing to compare (skipped).
set -eu
cd "$(dirname "$0")/.."
skip() {
    echo "abi.sh: skipped: $*"
    exit 77
}
fail() {
    echo "abi.sh: $*" >&2
    exit 2
}
[ $# -le 1 ] || fail "usage: tools/abi.sh [TAG]"
command -v abidiff >/dev/null || skip "abidiff is not installed (Debian: apt-get install abigail-tools)"
tag=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
[ -n "$tag" ] || skip "there is no tag v* yet, so there is no release to compare with"
git rev-parse --verify --quiet "$tag^{commit}" >/dev/null || fail "there is no tag '$tag'"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# library SOURCE BUILD: builds and installs the library and its headers into BUILD/image
library() {
    { meson setup "$2" "$1" --prefix=/ --libdir=lib -Dtests=disabled -Dcuda=disabled -Dmpi=disabled -Dsimd=false -Ddebug=true -Doptimization=0 &&
        meson compile -C "$2" kvftrace:shared_library && mkdir -p "$2/image" &&
        cp -L "$2/libtrace/libkvftrace.so.0" "$2/image" && cp -r "$1/libtrace/include" "$1/base/include" "$2/image" &&
        cp "$2/libtrace/include/kvf/version.h" "$2/image/include/kvf"; } >"$2.log" 2>&1 || {
        tail -n 20 "$2.log" >&2
        fail "the library of $1 cannot be built (the end of the log is above)"
    }
}
mkdir "$folder/old-source"
git archive "$tag" | tar -x -C "$folder/old-source"
library "$folder/old-source" "$folder/old"
library . "$folder/new"
status=0
# Added functions are compatible, so they are not counted.
abidiff --no-added-syms --headers-dir1 "$folder/old/image/include" --headers-dir2 "$folder/new/image/include" \
    "$folder/old/image/libkvftrace.so.0" "$folder/new/image/libkvftrace.so.0" || status=$?
# Bits of abidiff's status: 1 error, 2 usage, 4 change, 8 removal
[ $((status & 3)) = 0 ] || fail "abidiff failed with status $status"
if [ "$status" != 0 ]; then
    echo "abi.sh: functions or types changed since $tag: keep them, or raise the soversion (libtrace/meson.build)"
    exit 1
fi
echo "abi.sh: programs built with $tag work with this library"
