#!/bin/sh
# Make the shipped gates again: trimkv, dbtrimkv and wgkv for SmolLM2-135M-Instruct.
#
# usage: train.sh wikitext2-valid.txt gsm8k-train.jsonl [OUT_FOLDER [METHOD...]]
#
# Without METHOD all three, one after the other, into OUT_FOLDER (default: .).  A run that was
# stopped goes on when the same command is given again.  KVFATE names the program, KVFATE_MODEL
# the model (default: the one in the cache folder).  Test sets are refused: the share of each file
# that trains is its first nine tenths, the rest checks, and what gates are judged on is in neither.
set -eu

# ---- settings: those of each method, its steps and the documents of its checks; then what all share.
# docs/reference/gates.md explains them, docs/studies/gates.md says why they are these.
trimkv='trimkv:variant=code,bias=10,M=32,lr=3e-3,fwkl=1,ntp=0' trimkv_steps=600 trimkv_docs=4
dbtrimkv='dbtrimkv:variant=code,bias=10,M=32,lr=3e-3,fwkl=1,ntp=0' dbtrimkv_steps=300 dbtrimkv_docs=8
wgkv='wgkv:variant=code,lr=1e-2,lambda=0.16,window=16' wgkv_steps=150 wgkv_docs=4
length=512
packing=run
share=0.9
seed=0
check_every=50
budgets=64,128
patience=0
save_every=10

[ $# -ge 2 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
out=${3:-.}
kvfate=${KVFATE:-kvfate}

# refuse FILE: whether its name, or that of what it links to, is one of a test set
refuse() {
    [ -f "$1" ] || { echo "train.sh: $1: no such file" >&2; exit 1; }
    for name in "$1" "$(readlink -f -- "$1")"; do
        case $(basename -- "$name" | tr '[:upper:]' '[:lower:]') in
        *test*) echo "train.sh: $1: a test set; gates must not see what they are judged on" >&2
                exit 2 ;;
        esac
    done
}

# train METHOD SETTINGS STEPS DOCUMENTS; the text three times, so that it weighs as much as the questions
train() {
    "$kvfate" train ${KVFATE_MODEL:+-m "$KVFATE_MODEL"} --data "$text" "$text" "$text" "$questions" --method "$2" \
        --steps "$3" --length "$length" --packing "$packing" --share "$share" --seed "$seed" \
        --check-every "$check_every" --check-docs "$4" --budgets "$budgets" \
        --patience "$patience" --save-every "$save_every" \
        -o "$out/smollm2-135m-$1.safetensors"
}

text=$1 questions=$2
refuse "$text"
refuse "$questions"
mkdir -p "$out"
if [ $# -gt 3 ]; then
    shift 3
else
    set -- trimkv dbtrimkv wgkv
fi
for method; do
    case $method in
    trimkv) train trimkv "$trimkv" "$trimkv_steps" "$trimkv_docs" ;;
    dbtrimkv) train dbtrimkv "$dbtrimkv" "$dbtrimkv_steps" "$dbtrimkv_docs" ;;
    wgkv) train wgkv "$wgkv" "$wgkv_steps" "$wgkv_docs" ;;
    *) echo "train.sh: '$method' is none of trimkv, dbtrimkv and wgkv" >&2; exit 2 ;;
    esac
done
