#!/bin/sh
# Measures prefill and decode of kvfate and of other engines, alternating, on the same model files.
# usage: bench/vs_peers.sh [-r ROUNDS] [-t THREADS] KVFATE PEER[,PEER...] MODEL.gguf...
#   PEER: the llama-bench of llama.cpp or of ik_llama.cpp.  A model needs a context of 8,192 tokens.
#   Each line: medians of all rounds, tokens per second, and how many times kvfate is the fastest peer.
#   kvfate records in every line: --probes lean, or paper if the line names it; "8 bits" is --activations 8, and
#   "integers" is --activations 16 of models with float weights, by their names; "i16" and "q8_0" are caches of these types.
# Requantised copies of a model: llama-quantize --allow-requantize MODEL.gguf COPY.gguf Q8_0 (F16, Q4_K_M)
set -eu
rounds=3 threads=2
while getopts r:t: option; do
    case $option in
    r) rounds=$OPTARG ;;
    t) threads=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 3 ] || { sed -n '3,8s/^# //p' "$0" >&2; exit 2; }
kvfate=$1 peers=$(echo "$2" | tr ',' ' ')
shift 2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
for n in 1 512 4096 8000; do
    awk -v n=$n 'BEGIN { srand(7); for (i = 0; i < n; i++) printf "%d ", 1000 + int(rand() * 39000) }' >"$work/$n.ids"
done

# ours MODEL LINE PROMPT NEW prefill|decode [options of kvfate run]
ours() {
    model=$1 line=$2 prompt=$3 new=$4 what=$5
    shift 5
    "$kvfate" run -m "$model" --ids "$work/$prompt.ids" -n "$new" --ignore-eos -t "$threads" --json -q --overwrite \
        -o "$work/x.kvf" "$@" | sed "s/.*\"${what}_tokens_per_second\":\([0-9.]*\).*/$line|kvfate|\1/" >>"$work/rates"
}

# theirs PEER MODEL LINE OPTIONS...
theirs() {
    peer=$1 model=$2 line=$3
    shift 3
    "$peer" -m "$model" -t "$threads" -r 1 -fa 1 -o csv "$@" 2>/dev/null | python3 -c '
import csv, sys
rows = list(csv.DictReader(line for line in sys.stdin if line.count(",") > 5))
print(sys.argv[1], rows[-1]["avg_ts"], sep="|")' "$line|$peer" >>"$work/rates" || echo "$line|$peer|0" >>"$work/rates"
}

# Prints the option with which a peer generates after a long prompt.
deep() { if "$1" -h 2>&1 | grep -q -e '-gp <'; then echo "-gp 8000,32"; else echo "-d 8000 -n 32"; fi; }

for round in $(seq "$rounds"); do
    for model in "$@"; do
        name=$(basename "$model" .gguf)
        for peer in $peers; do
            theirs "$peer" "$model" "$name|prefill 512" -p 512 -n 0
            theirs "$peer" "$model" "$name|prefill 4096" -p 4096 -n 0
            theirs "$peer" "$model" "$name|decode 64" -p 0 -n 64
            # shellcheck disable=SC2046 # two words
            theirs "$peer" "$model" "$name|decode at 8000" -p 0 $(deep "$peer")
        done
        ours "$model" "$name|prefill 512" 512 1 prefill --probes lean
        ours "$model" "$name|prefill 512, paper" 512 1 prefill --probes paper
        ours "$model" "$name|prefill 4096" 4096 1 prefill --probes lean
        ours "$model" "$name|decode 64" 1 65 decode --probes lean
        case $name in *F16* | *F32*) bits=16 word=integers ;; *) bits=8 word='8 bits' ;; esac
        ours "$model" "$name|prefill 512, $word" 512 1 prefill --probes lean --activations $bits
        ours "$model" "$name|prefill 512, paper, $word" 512 1 prefill --probes paper --activations $bits
        ours "$model" "$name|prefill 512, $word, i16" 512 1 prefill --probes lean --activations $bits --kv-type i16
        ours "$model" "$name|prefill 512, paper, $word, i16" 512 1 prefill --probes paper --activations $bits --kv-type i16
        ours "$model" "$name|prefill 4096, $word" 4096 1 prefill --probes lean --activations $bits
        ours "$model" "$name|prefill 4096, $word, i16" 4096 1 prefill --probes lean --activations $bits --kv-type i16
        ours "$model" "$name|prefill 512, $word, q8_0" 512 1 prefill --probes lean --activations $bits --kv-type q8_0
        ours "$model" "$name|prefill 4096, $word, q8_0" 4096 1 prefill --probes lean --activations $bits --kv-type q8_0
        ours "$model" "$name|decode 64, $word" 1 65 decode --probes lean --activations $bits
        ours "$model" "$name|decode at 8000" 8000 33 decode --probes lean
        ours "$model" "$name|decode at 8000, h2o 256" 8000 65 decode --probes lean --method h2o -B 256
        echo "round $round of $rounds: $name" >&2
    done
done

grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: //'
python3 - "$work/rates" <<'PY'
import collections, statistics, sys
rates = collections.defaultdict(list)
for line in open(sys.argv[1]):
    model, what, who, rate = line.rstrip("\n").split("|")
    rates[model, what, who].append(float(rate))
median = {key: statistics.median(values) for key, values in rates.items()}
print(f"{'model':36s} {'':26s} {'kvfate':>8s} {'range':>14s} {'peer':>8s} {'range':>14s} {'times':>6s}")
for (model, what, who), rate in median.items():
    if who != "kvfate":
        continue
    same = what.split(",")[0]  # what peers have no word for is beside their plain run
    peer = max((key for key in median if key[:2] == (model, same) and key[2] != "kvfate"), key=median.get)
    spread = [f"{min(rates[k]):.0f}..{max(rates[k]):.0f}" for k in ((model, what, who), peer)]
    times = f"{rate / median[peer]:6.2f}" if median[peer] else "     -"
    print(f"{model[:36]:36s} {what:26s} {rate:8.1f} {spread[0]:>14s} {median[peer]:8.1f} {spread[1]:>14s} {times}")
PY
