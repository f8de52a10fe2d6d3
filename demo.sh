#!/bin/sh
# Set up, build, run a real model five times, and draw a page of figures.
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

# run METHOD INPUT...: run a method on the input, keep the trace and the summary
run() {
    method=$1 name=${1%%:*}
    shift
    printf '\n== %s %s\n' "$method" "$*" >&2
    set -- kvfate run "$@" --method "$method" --overwrite -o "$name.kvf"
    printf 'run\t%s\t%s\t\n' "$method" "$*" >>figures.tsv
    "$@" --json >"$name.json"
}

section() { printf 'section\t%s\t%s\t\n' "$1" "$2" >>figures.tsv; }

# draw OUT.png CAPTION ANALYSIS X.kvf [options]
# --caption prints, before the summary, what the picture shows.
draw() {
    png=$1 caption=$2
    shift 2
    set -- kvfate "$@" -o "$png"
    printf 'figure\t%s\t%s\t%s\n' "$png" "$caption" "$*" >>figures.tsv
    "$@" >"${png%.png}.txt" 2>&1 || { cat "${png%.png}.txt" >&2; exit 1; }
    printf '.' >&2
}

run full -f problem.txt -n 160 --temp 0.6 --top-p 0.9 --seed 1
# All methods get the text of the first run, so that their pictures show the same tokens.  A copy of every
# evicted entry counts the later queries that would have used it.
for method in h2o snapkv keydiff trimkv; do # trimkv with the shipped gates
    run $method --force full.kvf --budget 256 --shadow entries
done

printf '\ndrawing ' >&2
. ../../examples/demo/figures.sh
printf '\n' >&2
kvfate report h2o.kvf snapkv.kvf keydiff.kvf trimkv.kvf full.kvf --max-size 25 -o report.html
python3 ../../examples/demo/gallery.py figures.tsv index.html
cd ../..
printf '\nThe gallery is ready: file://%s/%s/index.html\n' "$PWD" $out
printf 'Point at every entry of every head: file://%s/%s/report.html\n' "$PWD" $out
printf 'The traces lie beside it; try: %s/cli/kvfate trace info %s/h2o.kvf\n' $build $out
