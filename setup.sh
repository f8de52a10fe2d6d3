#!/bin/sh
# Install what kvfate needs and is not there: packages of Debian, Ubuntu or Fedora, and the default model.
# usage: ./setup.sh [tests]      (tests: also what ./test.sh needs)
# `kvfate claims` and `kvfate predict` also need NumPy and SciPy, which only `./setup.sh tests` installs.
# Safe to run again: what is there is left alone.
set -eu

build_packages='gcc meson ninja-build pkg-config libc6-dev
  libcairo2-dev libpango1.0-dev libharfbuzz-dev libpng-dev zlib1g-dev libcjson-dev libzstd-dev libminizip-dev
  libsqlite3-dev libxxhash-dev libpcre2-dev libutf8proc-dev liblapack3 fonts-lato fonts-dejavu-core fonts-noto-cjk
  fonts-noto-color-emoji
  ca-certificates python3 python3-pip'
test_packages='libcriterion-dev python3-numpy python3-scipy python3-zstandard valgrind poppler-utils mandoc
  g++ git chromium clang-format-14 clang-format libopenmpi-dev openmpi-bin'
# Fedora's names.  Ubuntu has Debian's, but no clang-format-14 and its chromium is no package: what needs them skips.
fedora_packages='gcc meson ninja-build pkgconf-pkg-config glibc-devel
  cairo-devel pango-devel harfbuzz-devel libpng-devel zlib-devel cjson-devel libzstd-devel minizip-ng-compat-devel
  sqlite-devel xxhash-devel pcre2-devel utf8proc-devel lapack lato-fonts dejavu-sans-fonts google-noto-sans-cjk-fonts
  google-noto-color-emoji-fonts ca-certificates python3 python3-pip'
fedora_tests='criterion-devel python3-numpy python3-scipy python3-zstandard valgrind poppler-utils mandoc gcc-c++ git
  chromium clang-tools-extra openmpi-devel'


say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

install_packages() { # those of Debian and Ubuntu, or of Fedora
    if command -v dpkg-query >/dev/null; then
        has() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
        install='apt-get install -y --no-install-recommends'
        names=$1
        grep -qs '^ID=ubuntu' /etc/os-release && names=$(printf '%s' "$1" | sed 's/chromium clang-format-14//')
    elif command -v dnf >/dev/null; then
        has() { rpm -q --whatprovides "$1" >/dev/null 2>&1; }
        install='dnf install -y --setopt=install_weak_deps=False'
        names=$2
    else
        die "this script knows the packages of Debian, Ubuntu and Fedora; on another system install what" \
            "docs/reference/dependencies.md lists, then run meson yourself (HACKING.md)"
    fi
    missing=
    for p in $names; do
        has "$p" || missing="$missing $p"
    done
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || die "packages are missing; run this, then try again:
  sudo $install$missing"
    say "installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    if ! { { [ "${install%% *}" = dnf ] || apt-get update; } && $install $missing; } >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        die "${install%% *} failed (its last lines are above; all of it is in $log); is there a network?"
    fi
    rm -f "$log"
}

case ${1:-} in
    '') install_packages "$build_packages" "$fedora_packages" ;;
    tests) install_packages "$build_packages $test_packages" "$fedora_packages $fedora_tests" ;;
    *) die "usage: ./setup.sh [tests]" ;;
esac
folder=$(dirname "$0")
PYTHONPATH=$folder/python PYTHONDONTWRITEBYTECODE=1 python3 -m kvfate "models get" smollm2-135m >/dev/null
