#!/bin/sh
# One study on several machines without MPI: each job does its part, and parts are put together in any order.
#
# usage: sbatch --array=1-8 examples/cluster_array.sh OUT EVAL-OPTION...     with Slurm, one job for each part
#        PART=3 PARTS=8 examples/cluster_array.sh OUT EVAL-OPTION...         by hand, or with another scheduler
#        examples/cluster_array.sh OUT EVAL-OPTION...                        when all parts are done: the table, OUT/eval.tsv
#
# OUT is a folder that all machines see; OUT/parts keeps how many parts there are, so that `sbatch --array=3` does a single one again, or what
# is missing of it.  KVFATE names the program (kvfate).
set -eu
out=$1
shift
kvfate=${KVFATE:-kvfate}
part=${PART:-${SLURM_ARRAY_TASK_ID:-}} parts=${PARTS:-${SLURM_ARRAY_TASK_COUNT:-}}
mkdir -p "$out"
if [ -n "$part" ]; then
    [ -e "$out/parts" ] || { echo "$parts" > "$out/parts.$part" && mv "$out/parts.$part" "$out/parts"; }
    read -r parts < "$out/parts"
    "$kvfate" eval "$@" --shard "$part/$parts" --state "$out/part-$part.state"
else
    "$kvfate" corpus merge "$out"/part-*.state --state "$out/all.state"
    "$kvfate" eval "$@" --state "$out/all.state" -o "$out/eval.tsv"
fi
