#!/bin/sh
# From nothing to a page of figures: set up, build, run a real model five times, draw.
# usage: ./demo.sh           output: out/demo/index.html and, to point and click, out/demo/report.html
set -eu
cd "$(dirname "$0")"
./setup.sh

build=build-release out=out/demo
[ -f $build/build.ninja ] || {
    mkdir -p $build
    meson setup $build --buildtype=release -Dtests=disabled >$build/setup.log 2>&1 || {
        cat $build/setup.log >&2
        exit 1
    }
}
ninja -C $build --quiet cli/kvfate
PATH=$PWD/$build/cli:$PATH
rm -rf $out
mkdir -p $out
cp examples/demo/problem.txt examples/demo/style.css $out/
cd $out
: >figures.tsv

# run METHOD [options]: decode the problem, keep the trace and the summary
run() {
    method=$1 name=${1%%:*}
    shift
    printf '\n== %s %s\n' "$method" "$*" >&2
    set -- kvfate run -f problem.txt -n 256 --temp 0.6 --top-p 0.9 --seed 1 --method "$method" "$@" \
        --overwrite -o "$name.kvf"
    printf 'run\t%s\t%s\t\n' "$method" "$*" >>figures.tsv
    "$@" --json >"$name.json"
}

section() { printf 'section\t%s\t%s\t\n' "$1" "$2" >>figures.tsv; }

# draw OUT.png CAPTION ANALYSIS X.kvf [options]
draw() {
    png=$1 caption=$2
    shift 2
    set -- kvfate "$@" -o "$png"
    printf 'figure\t%s\t%s\t%s\n' "$png" "$caption" "$*" >>figures.tsv
    "$@" >"${png%.png}.txt" 2>&1 || { cat "${png%.png}.txt" >&2; exit 1; }
    printf '.' >&2
}

run full
# A shadow keeps what was evicted and counts who would have used it.
run h2o --budget 256 --shadow entries
run snapkv --budget 256 --shadow entries
run keydiff --budget 256 --shadow entries
run trimkv:chunk=64 --budget 256 --shadow entries # with shipped gates; it cuts the prompt while it reads

printf '\ndrawing ' >&2
. ../../examples/demo/figures.sh
printf '\n' >&2
kvfate report h2o.kvf snapkv.kvf keydiff.kvf trimkv.kvf full.kvf --max-size 25 -o report.html
python3 ../../examples/demo/gallery.py figures.tsv index.html
cd ../..
printf '\nThe gallery is ready: file://%s/%s/index.html\n' "$PWD" $out
printf 'Point at every entry of every head: file://%s/%s/report.html\n' "$PWD" $out
printf 'The traces lie beside it; try: %s/cli/kvfate trace info %s/h2o.kvf\n' $build $out
