#!/bin/sh
# Does attention to distractors cost the answer?  The tables of docs/studies/causal.md: 40 prompts for each kind of text and
# each length, what becomes of the answers when entries leave (OUT/KIND-LENGTH.tsv), and how often they are right under cache
# methods (OUT/KIND-LENGTH-eval.tsv).  A table that is there is not made again, so that a run that was stopped goes on.
#
# usage: causal.sh OUT [LENGTH...]      lengths in tokens of the model (500 1000 2000 4000)
# Set in the environment: KVFATE, the program; TASKS, prompts for each table (40).
set -eu
[ $# -ge 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
out=$1
shift
[ $# -gt 0 ] || set -- 500 1000 2000 4000
program=${KVFATE:-kvfate}
tasks=${TASKS:-40}
mkdir -p "$out"

# table NAME LENGTH NEEDLE-OPTIONS...
table() {
    name=$out/$1-$2
    length=$2
    shift 2
    [ ! -e "$name.tsv" ] || return 0
    echo "$name.tsv" >&2
    mkdir -p "$name"
    "$program" tasks needle --tokens "$length" -n "$tasks" "$@" -o "$name/task"
    "$program" ablate --as causal "$name" -o "$name.tsv" > /dev/null
}

# answers NAME LENGTH: the same prompts under methods with small caches
answers() {
    name=$out/$1-$2
    [ ! -e "$name-eval.tsv" ] || return 0
    echo "$name-eval.tsv" >&2
    "$program" eval --tasks "$name" --methods full,window,h2o,snapkv,tova,keydiff,rkv,trimkv,dbtrimkv --budgets 64,128,256 \
        --state "$name-eval.state" -o "$name-eval.tsv" > /dev/null
}

for length; do
    table one "$length" --keys 8                        # one of eight numbers among small stories
    table four "$length" --keys 8 --queries 4           # four of them
    table needles "$length" --haystack needles          # one number among sentences that all have one
    for kind in one four needles; do
        answers "$kind" "$length"
    done
done
