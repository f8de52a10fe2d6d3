#!/bin/sh
# Runs the examples on traces that some of them write.  The numbers expected
# follow from its rule: a window of W over 64 tokens evicts 64 - W entries; with
# ages i % 8, at n = 3 there are 37 of 61 alive, at n = 4 there are 28 of 60.
set -eu
read_trace=$1 write_trace=$2 statistic=$3 own_decoder=$4 view_column=$5 threads=$6 kvfate=$7
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

expect() { # what, wanted, got
    [ "$2" = "$3" ] || { printf '%s: expected\n%s\ngot\n%s\n' "$1" "$2" "$3"; exit 1; }
}

"$write_trace" "$dir/x.kvf"
"$read_trace" "$dir/x.kvf" > "$dir/out"
expect "first line" "64 steps, 1 layers, closed" "$(head -n 1 "$dir/out")"
expect "evictions" "L0K0: 56 of 64 entries evicted
L0K1: 48 of 64 entries evicted" "$(grep evicted "$dir/out")"
expect "half-life" "L0H0 4
L0H1 4" "$("$statistic" "$dir/x.kvf")"
"$kvfate" trace verify --full "$dir/x.kvf"

# Of 256 entries the last 16 are alive; head 0 keeps every second of the others, head 1 every third.
"$own_decoder" "$dir/own.kvf"
expect "own decoder" "L0K0: 120 of 256 entries evicted
L0K1: 160 of 256 entries evicted" "$("$read_trace" "$dir/own.kvf" | grep evicted)"
"$kvfate" trace verify --full "$dir/own.kvf"
# t mod 7 sums to 21 in each of the 36 whole weeks, and to 0 + 1 + 2 + 3 in what is left of 256
expect "column of one's own" "L0 H0: mean 2.97656 of 256 values" "$("$view_column" "$dir/own.kvf" x-mylab.guesses)"

# The mean of t mod 100 is 49.5; head h has h + 1 times as much, and layer l adds l.
for n in 1 2 7; do
    "$threads" "$dir/threads$n.kvf" $n
    "$kvfate" trace checksum "$dir/threads$n.kvf" | cut -d ' ' -f 1 >> "$dir/digests"
    expect "threads" "L5 H3: mean 203 of 20000 values" "$("$view_column" "$dir/threads$n.kvf" x-mylab.weight | grep 'L5 H3')"
done
expect "digests" 1 "$(sort -u "$dir/digests" | wc -l)"
"$kvfate" trace verify --full "$dir/threads7.kvf"

# cut in the middle: no snapshot is left, and nobody crashes
head -c 600 "$dir/x.kvf" > "$dir/cut.kvf"
expect "cut" "0 steps, 1 layers, unfinished" "$("$read_trace" "$dir/cut.kvf" | head -n 1)"
status=0
"$kvfate" trace verify "$dir/cut.kvf" > "$dir/out" 2> "$dir/err" || status=$?
expect "exit of verify on an unfinished trace" 3 "$status"
# 64 file header, 88 + 32 run header, 88 + 216 schema; then the texts
grep -q "unfinished: 2 complete records up to byte 488, then 112 bytes of an incomplete one" "$dir/err" || { cat "$dir/err"; exit 1; }
for p in "$read_trace" "$statistic"; do
    if "$p" "$dir/none.kvf" 2> "$dir/err"; then echo "$p: no error"; exit 1; fi
    grep -q "none.kvf: cannot open" "$dir/err"
done
if "$view_column" "$dir/own.kvf" none 2> "$dir/err"; then echo "$view_column: no error"; exit 1; fi
grep -q "own.kvf has no column none" "$dir/err"
