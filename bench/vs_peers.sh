#!/bin/sh
# Measures prefill and decode of kvfate and of other engines, alternating, on the same model files.
# usage: bench/vs_peers.sh [-r ROUNDS] [-t THREADS] [-l LINE[,LINE...]] KVFATE PEER[,PEER...] MODEL...
#   PEER: the llama-bench of llama.cpp or of ik_llama.cpp.  MODEL: a file, or a name of "kvfate models".
#   Each line: medians of all rounds, tokens per second, and the ratio of kvfate to the fastest peer.
#   The last columns are the limit of the machine and the fraction of it that kvfate reaches.  They need
#   bench_limits in the build folder of KVFATE (ninja -C BUILD bench/bench_limits).
#   LINEs are by default those of the four models of "kvfate models":
#     512          prefill of 512 tokens, --probes lean, 16-bit activations
#     512-paper    the same with --probes paper
#     512-8        --activations 8 and a q8_0 cache, lean
#     512-8-paper  the same with --probes paper
#     64           decoding 64 tokens, lean
#     2048         decoding 32 tokens after a prompt of 2,048, full cache
#     2048-256     the same with h2o and 256 entries per head
#   Others, for models with a context of 8,192 tokens:
#     4096, 4096-8, 4096-i16 (8 bits), 512-8bits, 512-i16, 512-i16-paper, 64-8bits, 8000, 8000-256
#   In lines with 8-bit activations, float weights (F16 or F32 in the name) use integers and 16 bits.
# Requantised copies of a model: llama-quantize --allow-requantize MODEL.gguf COPY.gguf Q8_0 (F16, Q4_K_M)
set -eu
rounds=3 threads=2 lines=512,512-paper,512-8,512-8-paper,64,2048,2048-256
while getopts r:t:l: option; do
    case $option in
    r) rounds=$OPTARG ;;
    t) threads=$OPTARG ;;
    l) lines=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 3 ] || { sed -n '3,23s/^# //p' "$0" >&2; exit 2; }
kvfate=$1 peers=$(echo "$2" | tr ',' ' ')
for n in "$rounds" "$threads"; do
    case $n in '' | *[!0-9]* | 0*) echo "vs_peers.sh: -r and -t need a number of 1 or more, not '$n'" >&2; exit 2 ;; esac
done
if [ -z "$peers" ] || [ -z "$lines" ]; then
    echo "vs_peers.sh: name a PEER, and a LINE after -l" >&2
    exit 2
fi
for program in "$kvfate" $peers; do
    command -v "$program" > /dev/null || { echo "vs_peers.sh: $program is not a program" >&2; exit 2; }
done
shift 2

# Prints the fields of a line: phase, tokens of the prompt, new tokens, limit, options of kvfate.
describe() {
    b="--activations $bits"
    case $1 in
    512) echo "prefill|512|1|prefill|--probes lean" ;;
    512-paper) echo "prefill|512|1|prefill, paper|--probes paper" ;;
    512-8) echo "prefill|512|1|$low|--probes lean $b --kv-type q8_0" ;;
    512-8-paper) echo "prefill|512|1|$low_paper|--probes paper $b --kv-type q8_0" ;;
    512-8bits) echo "prefill|512|1|$low|--probes lean $b" ;;
    512-i16) echo "prefill|512|1|$low|--probes lean $b --kv-type i16" ;;
    512-i16-paper) echo "prefill|512|1|$low_paper|--probes paper $b --kv-type i16" ;;
    4096) echo "prefill|4096|1|prefill|--probes lean" ;;
    4096-8) echo "prefill|4096|1|$low|--probes lean $b --kv-type q8_0" ;;
    4096-i16) echo "prefill|4096|1|$low|--probes lean $b --kv-type i16" ;;
    64) echo "decode|1|65|decode|--probes lean" ;;
    64-8bits) echo "decode|1|65|decode|--probes lean $b" ;;
    2048) echo "decode|2048|33|decode|--probes lean" ;;
    2048-256) echo "decode|2048|33|decode|--probes lean --method h2o -B 256" ;;
    8000) echo "decode|8000|33|decode|--probes lean" ;;
    8000-256) echo "decode|8000|33|decode|--probes lean --method h2o -B 256" ;;
    *) echo "vs_peers.sh: no line is named $1" >&2; return 1 ;;
    esac
}

bits=8 low='' low_paper=''
for line in $(echo "$lines" | tr ',' ' '); do
    describe "$line" >/dev/null || exit 2
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
for n in 1 512 2048 4096 8000; do
    awk -v n=$n 'BEGIN { srand(7); for (i = 0; i < n; i++) printf "%d ", 1000 + int(rand() * 39000) }' >"$work/$n.ids"
done

# Prints the file of a model that is given by its name in "kvfate models".
file_of() {
    if [ -e "$1" ]; then
        echo "$1"
        return
    fi
    "$kvfate" models --json | python3 -c '
import json, os, sys
folder = os.environ.get("KVFATE_CACHE") or os.path.expanduser("~/.cache/kvfate")
for m in json.load(sys.stdin)["listed"]:
    file = os.path.join(folder, m["file"])
    if m["name"] == sys.argv[1] and os.path.exists(file):
        print(file)' "$1"
}

# ours MODEL LINE: one run; writes MODEL|LINE|kvfate|RATE|PHASE PROMPT|LIMIT
ours() {
    describe "$2" >"$work/line"
    IFS='|' read -r phase prompt new limit options <"$work/line"
    # shellcheck disable=SC2086 # options are words
    "$kvfate" run -m "$1" --ids "$work/$prompt.ids" -n "$new" --ignore-eos -t "$threads" --json -q --overwrite \
        -o "$work/x.kvf" $options |
        sed "s/.*\"${phase}_tokens_per_second\":\([0-9.]*\).*/$name|$2|kvfate|\1|$phase $prompt|$limit/" >>"$work/rates"
}

# Prints the options of a peer for PHASE PROMPT.
peer_options() {
    case $2 in
    "decode 1") echo "-p 0 -n 64" ;;
    decode*) if "$1" -h 2>&1 | grep -q -e '-gp <'; then echo "-p 0 -n 0 -gp ${2#* },32"; else echo "-p 0 -d ${2#* } -n 32"; fi ;;
    *) echo "-p ${2#* } -n 0" ;;
    esac
}

# theirs PEER MODEL "PHASE PROMPT": one run
theirs() {
    # shellcheck disable=SC2046 # options are words
    "$1" -m "$2" -t "$threads" -r 1 -fa 1 -o csv $(peer_options "$1" "$3") 2>/dev/null | python3 -c '
import csv, sys
rows = list(csv.DictReader(line for line in sys.stdin if line.count(",") > 5))
print(*sys.argv[1:4], rows[-1]["avg_ts"], sys.argv[2], "", sep="|")' "$name" "$3" "$1" >>"$work/rates" ||
        echo "$name|$3|$1|0|$3|" >>"$work/rates"
}

limits=$(dirname "$kvfate")/../bench/bench_limits
: >"$work/limits"
for round in $(seq "$rounds"); do
    for model in "$@"; do
        file=$(file_of "$model")
        [ -n "$file" ] || { echo "vs_peers.sh: $model is neither a file nor a fetched model" >&2; exit 2; }
        name=$(basename "$file")
        bits=8 low='prefill, 8 bits' low_paper='prefill, paper, 8 bits'
        case $name in *F16* | *F32*) bits=16 low=prefill low_paper='prefill, paper' ;; esac
        if [ "$round" = 1 ] && [ -x "$limits" ]; then
            "$limits" -t "$threads" "$file" >>"$work/limits"
        fi
        last=''
        for line in $(echo "$lines" | tr ',' ' '); do
            describe "$line" >"$work/line"
            IFS='|' read -r phase prompt new limit options <"$work/line"
            if [ "$phase $prompt" != "$last" ]; then # peers run once for lines that differ in our options
                for peer in $peers; do
                    theirs "$peer" "$file" "$phase $prompt"
                done
            fi
            last="$phase $prompt"
            ours "$file" "$line"
        done
        echo "round $round of $rounds: $name" >&2
    done
done

grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: //'
echo "load average at the end: $(cut -d ' ' -f 1-3 /proc/loadavg)"
python3 - "$work/rates" "$work/limits" <<'PY'
import collections, statistics, sys
rates, limits = collections.defaultdict(list), {}
for text in open(sys.argv[1]):
    model, line, who, rate, same, limit = text.rstrip("\n").split("|")
    rates[model, line, who, same, limit].append(float(rate))
for text in open(sys.argv[2]):
    model, line, rate = text.rstrip("\n").split("|")
    limits[model, line] = max(float(rate), limits.get((model, line), 0))
for (model, line), rate in limits.items():
    if model == "machine":
        print(f"{line}: {rate:.1f}")
median = {key: statistics.median(values) for key, values in rates.items()}
print(f"{'model':36s} {'line':13s} {'kvfate':>8s} {'range':>14s} {'peer':>8s} {'range':>14s} {'times':>6s}"
      f" {'limit':>8s} {'of it':>6s}")
for (model, line, who, same, limit), rate in median.items():
    if who != "kvfate":
        continue
    peer = max((k for k in median if k[0] == model and k[1] == same and k[2] != "kvfate"), key=median.get)
    spread = [f"{min(rates[k]):.0f}..{max(rates[k]):.0f}" for k in ((model, line, who, same, limit), peer)]
    times = f"{rate / median[peer]:6.2f}" if median[peer] else "     -"
    most = limits.get((model, limit))
    bound = f"{most:8.0f} {100 * rate / most:5.0f}%" if most else "       -      -"
    print(f"{model[:36]:36s} {line:13s} {rate:8.1f} {spread[0]:>14s} {median[peer]:8.1f} {spread[1]:>14s} {times} {bound}")
PY
