#!/bin/sh
# Admission together with eviction and with a choice of pages (docs/studies/synergy.md): how often the
# cache is cut, what is held and what is read, with and without a write gate.
#
# usage: 04_synergy.sh GATES OUT 'TAU ...' BUDGET OPTION...
#
# GATES holds write gates, OUT is a folder for the traces and for synergy.tsv, each TAU a threshold
# of the gate (0 admits everything), and the OPTIONs are those of kvfate run that name a model, a
# prompt and a length.  KVFATE names the program.
set -eu
[ $# -ge 5 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
gates=$1 out=$2 taus=$3 budget=$4
shift 4
kvfate=${KVFATE:-kvfate}
mkdir -p "$out"

# run NAME OPTION...: a trace of the decisions, a summary, and the table of all entries
run() {
    name=$1
    shift
    "$kvfate" run "$@" --probes evict --json -q --overwrite -o "$out/$name.kvf" > "$out/$name.json"
    "$kvfate" eviction "$out/$name.kvf" -o "$out/$name.tsv" > "$out/$name.txt"
}

# number KEY: a number of the summary of the run $name
number() {
    sed -n "s/.*\"$1\":\\([0-9.e+-]*\\).*/\\1/p" "$out/$name.json"
}

# row METHOD TAU: a line of the result about the run $name.  An entry that was not admitted is
# refused at the age of W tokens, so those younger than that at the end say nothing of admission.
row() {
    awk -F '\t' -v heads="$(number kv_heads)" -v triggers="$(number triggers)" \
        -v end="$(number kv_entries_end)" -v peak="$(number kv_entries_peak)" \
        -v reads="$(number entries_read)" -v row="$1" -v tau="$2" '
        /^#/ || $1 == "head" { next }
        { born[$5]++; n++; if ($5 >= T) T = $5 + 1 }
        $8 == "refused" { refused++; W = $7 }
        $8 == "budget" { cut++ }
        END {
            for (b in born) if (b + W < T) old += born[b]
            printf "%s\t%s\t%.3f\t%d\t%.3f\t%.1f\t%.1f\t%.1f\n", row, tau,
                refused ? 1 - refused / old : 1, triggers, cut / n, end / heads, peak / heads, reads
        }' "$out/$name.tsv"
}

# The tokens of a run with a full cache are fed to all others, so that they differ in their
# decisions alone.
run full "$@"
{
    printf 'method\ttau\tadmitted\ttriggers\tcut\theld_end\theld_peak\tread\n'
    row full -
    run quest "$@" --force "$out/full.kvf" --method quest --budget "$budget"
    row quest -
    for method in wgkv-snapkv wgkv-quest; do
        for tau in $taus; do
            run "$method-$tau" "$@" --force "$out/full.kvf" --gates "$gates" \
                --method "$method:tau=$tau" --budget "$budget"
            row "$method" "$tau"
        done
    done
} > "$out/synergy.tsv"
cat "$out/synergy.tsv"
