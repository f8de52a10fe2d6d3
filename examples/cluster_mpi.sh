#!/bin/sh
# A study by the ranks of one MPI job: traces of a list of prompts, quality of methods, and what all traces say together.
#
# usage: mpirun is called here: RANKS=4 examples/cluster_mpi.sh OUT PROMPTS.jsonl TEXTS [OPTION...]
#        sbatch --ntasks=32 --cpus-per-task=4 examples/cluster_mpi.sh OUT PROMPTS.jsonl TEXTS [OPTION...]
#
# OUT is a folder that all machines see.  Options go to `run` and `eval`, such as -m MODEL.  The same command goes on where it
# was stopped.  KVFATE names the program (kvfate), MPIRUN what starts ranks.
set -eu
out=$1 prompts=$2 texts=$3
shift 3
kvfate=${KVFATE:-kvfate}
together() { ${MPIRUN:-mpirun} -n "${RANKS:-${SLURM_NTASKS:-2}}" "$kvfate" "$@"; }
mkdir -p "$out"
for method in h2o snapkv; do
    together run "$@" --jsonl "$prompts" --method $method -B 64 --probes paper -o "$out/$method"
    together corpus survival "$out/$method" --state "$out/survival-$method.state" -o "$out/survival-$method.tsv"
done
together eval "$@" --data "$texts" --methods h2o,snapkv --budgets 64,128 --state "$out/eval.state" -o "$out/eval.tsv"
