#!/bin/sh
# Makes the shipped gates of Gemma-3-270M and Qwen2.5-Coder-0.5B again: their texts, the gates and the records.
#
# usage: train_gates.sh gsm8k-train.jsonl wikitext2-valid.txt OUT [MODEL[:METHOD,...]...]
#
# The same command continues after a stop.  OUT/texts receives the texts, and OUT the gates MODEL-METHOD.safetensors.
# Without MODEL it trains the two shipped files.  METHOD is trimkv by default; dbtrimkv and wgkv are possible.
# KVFATE names the program and THREADS the threads (1).  gates/README.md lists the texts and the seconds that the shipped gates took.
set -eu
[ $# -ge 3 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
questions=$1 encyclopedia=$2 out=$3
shift 3
[ $# -gt 0 ] || set -- gemma-3-270m qwen2.5-coder-0.5b
texts=$out/texts
# texts.py writes all texts at its end, in alphabetical order.
[ -e "$texts/mathematics.jsonl" ] || "${KVFATE_PYTHON:-python3}" "$here/gates/texts.py" "$questions" "$encyclopedia" "$texts"
for model; do
    case $model in
    *:*) methods=${model#*:} ;;
    *) methods=trimkv ;;
    esac
    "$here/gates/train.sh" "${model%%:*}" "$out" "$methods" \
        "$texts/mathematics.jsonl" "$texts/encyclopedia.txt" "$texts/code.jsonl" "$texts/dialogue.jsonl"
done
