#!/bin/sh
# Train gates for a model of `kvfate models`, or train the shipped gates again.
#
# usage: train.sh MODEL OUT_FOLDER METHOD[,METHOD...] FILE...
#
# Example: gates/train.sh gemma-3-270m gates trimkv,dbtrimkv,wgkv TEXTS/mathematics.jsonl TEXTS/encyclopedia.txt \
#              TEXTS/code.jsonl TEXTS/dialogue.jsonl      (gates/texts.py makes these files)
#
# OUT_FOLDER receives for each method MODEL-METHOD.safetensors, its record MODEL-METHOD.log.jsonl and, during the
# training, its state.  A training that was stopped continues when the same command is given again; one that is
# finished returns at once.  The first nine tenths of each file train, the rest checks.  Test sets are rejected.
# KVFATE names the program, KVFATE_MODEL a model file (default: MODEL), THREADS the threads (default: 1),
# STEPS the steps (default: the table below).
set -eu

# ---- the settings of each method; docs/reference/gates.md explains them, docs/studies/gates.md gives the reasons
trimkv='trimkv:variant=code,bias=10,M=32,lr=3e-3,fwkl=1,ntp=0'
dbtrimkv='dbtrimkv:variant=code,bias=10,M=32,lr=3e-3,fwkl=1,ntp=0'
wgkv='wgkv:variant=code,lr=1e-2,lambda=0.16,window=16'

# set_steps MODEL-METHOD: sets the steps of 512 tokens and the documents of a check.  The gates of SmolLM2 were checked on
# documents of all files together, those of other models are checked on documents of each file.
set_steps() {
    case $1 in
    smollm2-135m-trimkv) steps=600 check='--check-docs 4' ;;
    smollm2-135m-dbtrimkv) steps=300 check='--check-docs 8' ;;
    smollm2-135m-wgkv) steps=150 check='--check-docs 4' ;;
    *-wgkv) steps=150 check='--check-docs 2 --check-files' ;;
    *) steps=300 check='--check-docs 2 --check-files' ;;
    esac
}

[ $# -ge 4 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
kvfate=${KVFATE:-kvfate} model=$1 out=$2 methods=$(echo "$3" | tr , ' ')
shift 3

# refuse FILE: ends the script if the file is missing, or if its name or the name of its target is that of a test set
refuse() {
    [ -f "$1" ] || { echo "train.sh: $1: no such file" >&2; exit 1; }
    for name in "$1" "$(readlink -f -- "$1")"; do
        case $(basename -- "$name" | tr '[:upper:]' '[:lower:]') in
        *test*) echo "train.sh: $1: a test set; gates must not see the texts that they are judged on" >&2
                exit 2 ;;
        esac
    done
}
for file; do
    refuse "$file"
done
for method in $methods; do
    case $method in
    trimkv | dbtrimkv | wgkv) ;;
    *) echo "train.sh: '$method' is none of trimkv, dbtrimkv and wgkv" >&2; exit 2 ;;
    esac
done
mkdir -p "$out"
for method in $methods; do
    gates=$out/$model-$method.safetensors
    settings=$(eval "echo \$$method")
    set_steps "$model-$method"
    "$kvfate" train -m "${KVFATE_MODEL:-$model}" --data "$@" --method "$settings" --steps "${STEPS:-$steps}" --length 512 \
        --packing run --share 0.9 --seed 0 --check-every 50 $check --budgets 64,128 --patience 0 \
        --save-every 10 -t "${THREADS:-1}" -o "$gates"
    cp "$gates.log.jsonl" "$out/$model-$method.log.jsonl"
done
