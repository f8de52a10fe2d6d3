#!/bin/sh
# The tables that `kvfate claims` asks for (docs/studies/claims.md), from the default model and small texts.
#
# usage: claims.sh OUT            makes OUT/*.tsv, prints the verdicts; goes on where it was stopped
#
# Set in the environment:
#   KVFATE, THREADS             the program, and threads
#   LENGTH, DOCS, BUDGET        tokens of a text (1024), texts of each kind (2), entries of a head in traces (64)
#   SHORT                       tokens of the short prompts with needles (a quarter of LENGTH)
#   PROSE, CODE, MARKUP         files of text, cut to LENGTH (pages, sources and tables of this repository)
#   MODEL, GATES, WRITE_GATES   another model, its retention and its write gates
#   WATCH                       query heads whose dynamics are recorded (L1H0,L15H4,L28H8)
#   ABLATE                      folder of gates/ablate.py, for the claims about training
#   NEEDLES                     prompts with a needle of each length, which differ in their seed (8)
#   NULL_MODEL                  a model of random weights, for null checks
#   NULL_GATES, NULL_WRITE_GATES  random gates, for null checks (tests/data/make_gates.py writes them)
set -eu
[ $# -eq 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
out=$1
kvfate=${KVFATE:-kvfate}
T=${LENGTH:-1024} docs=${DOCS:-2} B=${BUDGET:-64} needles=${NEEDLES:-8}
here=$(cd "$(dirname "$0")/.." && pwd)
everything=$((2 * T)) # a budget under which nothing is evicted
texts=$out/text traces=$out/trace
mkdir -p "$texts" "$traces"

kv() {
    command=$1
    shift
    "$kvfate" "$command" ${MODEL:+-m "$MODEL"} ${THREADS:+-t "$THREADS"} "$@"
}

# once FILE COMMAND...: the command makes FILE (as its last argument) whole, or nothing
once() {
    file=$1
    shift
    [ -e "$file" ] && return 0
    part=$(dirname "$file")/part-$(basename "$file")
    "$@" "$part" && mv "$part" "$file"
}

# ---- texts of LENGTH tokens

markup() { # N FILE: a page of a table, every third of the methods with what it needs
    "$kvfate" methods | awk -v n="$1" '
        BEGIN { print "<table>" }
        NF && NR % 3 == n { print "  <tr>"; for (i = 1; i <= NF; i++) printf "    <td>%s</td>\n", $i; print "  </tr>" }
        END { print "</table>" }' > "$2"
}

# tokens FILE: how many its prompt has, as a run that may hold one token complains
tokens() {
    { "$kvfate" run ${MODEL:+-m "$MODEL"} -f "$1" -n 0 -c 1 -q --overwrite -o "$out/none.kvf" 2>&1 || :; } |
        sed -n 's/.*the prompt has \([0-9]*\) tokens.*/\1/p'
}

cut_text() { # SOURCE FILE: the first LENGTH tokens, up to a few less
    bytes=$((4 * T))
    for _ in 1 2 3 4 5 6 7 8; do
        head -c "$bytes" "$1" | iconv -c -f UTF-8 -t UTF-8 > "$2"
        n=$(tokens "$2")
        if [ "${n:-0}" -le "$T" ] && [ "${n:-0}" -ge $((T - 4)) ]; then return 0; fi
        [ "${n:-0}" -gt 0 ] || break
        bytes=$((bytes * T / n - (n > T)))
    done
    [ "${n:-0}" -gt 0 ] && [ "$n" -le "$T" ] && [ "$n" -ge $((T - T / 8)) ] && return 0
    echo "claims.sh: $1: no $T tokens" >&2
    return 1
}

take() { # KIND FILE...: the first DOCS files that are long enough
    kind=$1 i=0
    shift
    for source; do
        [ "$i" -lt "$docs" ] || break
        if once "$texts/$kind-$i.txt" cut_text "$source"; then i=$((i + 1)); fi
    done
    [ "$i" -gt 0 ] || { echo "claims.sh: no text of the kind $kind" >&2; exit 1; }
}

for n in 0 1 2; do
    once "$texts/table-$n.html" markup "$n"
done
# Lists of files: what they name is split at blanks, on purpose.
# shellcheck disable=SC2086
{
    take prose ${PROSE:-"$here"/docs/reference/eval.md "$here"/docs/reference/format.md "$here"/docs/reference/gates.md \
        "$here"/docs/reference/reliability.md}
    take code ${CODE:-"$here"/base/table_io.c "$here"/base/table.c "$here"/base/json.c \
        "$here"/base/opt.c}
    take markup ${MARKUP:-"$texts"/table-*.html}
}
for n in short long; do
    [ "$n" = short ] && length=${SHORT:-$((T / 4))} || length=$T
    for i in $(seq "$needles"); do
        name=$texts/needle-$n-$i
        [ -e "$name.json" ] ||
            "$kvfate" needle ${MODEL:+-m "$MODEL"} --tokens "$((length - 64))" -s "$i" -o "$name"
    done
done

# ---- traces

run() { # NAME OPTION...
    name=$1
    shift
    once "$traces/$name.kvf" kv run "$@" --overwrite -q -o > "$out/log.txt" # the text
}

label() { # METHOD: its name in those of files
    case $1 in gkv:history=0) echo gkv-local ;; *) echo "$1" ;; esac
}

# Names of gates hold no blanks; without them the shipped ones are taken.
retention=${GATES:+--gates $GATES} write=${WRITE_GATES:+--gates $WRITE_GATES}
gates="$retention $write"
for text in "$texts"/prose-*.txt "$texts"/code-*.txt "$texts"/markup-*.txt; do
    x=$(basename "$text" .txt)
    # Retention gates that evict nothing: the full cache's attention, and what the gates say of it.
    run "full.$x" -f "$text" -n 0 --method trimkv -B "$everything" $retention \
        --probes paper,calibration,window
    run "trimkv.$x" -f "$text" -n 0 --method trimkv -B "$B" $retention --probes evict
    run "dbtrimkv.$x" -f "$text" -n 0 --method dbtrimkv -B "$B" $retention --probes evict
    run "wgkv.$x" -f "$text" -n 0 --method wgkv:local=16 -B "$everything" $write --probes evict
    # The second half token by token, as if it were generated.
    [ -e "$texts/$x.rest" ] || {
        "$kvfate" tokens "$traces/full.$x.kvf" -o - | awk -F '\t' '!/^#/ && $1 != "token" { print $2 }' > "$texts/$x.ids"
        half=$(($(wc -l < "$texts/$x.ids") / 2))
        head -n "$half" "$texts/$x.ids" > "$texts/$x.prompt"
        tail -n "+$((half + 1))" "$texts/$x.ids" > "$texts/$x.rest.part"
        mv "$texts/$x.rest.part" "$texts/$x.rest"
    }
    # G-KV and the same without its memory, which differ in nothing else.
    for method in snapkv gkv gkv:history=0; do
        run "$(label "$method").$x" --ids "$texts/$x.prompt" --force "$texts/$x.rest" --method "$method" -B "$B" \
            --probes evict,window
    done
done
for text in "$texts"/needle-*.txt; do
    x=$(basename "$text" .txt)
    run "$x" -f "$text" --spans "$texts/$x.json" -n 0 --method trimkv -B "$everything" $retention \
        --probes evict,gate,dilution
done
[ -z "${NULL_GATES:-}" ] || for i in $(seq "$needles"); do
    run "needle-random-$i" -f "$texts/needle-long-$i.txt" --spans "$texts/needle-long-$i.json" -n 0 --method trimkv \
        -B "$everything" --gates "$NULL_GATES" --probes evict,gate,dilution
done
for i in 1 2 3; do
    for seed in 1 2 3 4; do
        run "rollout.$i.$seed" -p "Tell a long story that begins on day $i of a journey." -n 96 --temp 0.8 \
            --seed "$seed" --ignore-eos --probes lean --watch-queries "${WATCH:-L1H0,L15H4,L28H8}"
    done
done

# ---- tables

corpus() { # NAME ANALYSIS TRACES-OR-OPTIONS...
    name=$1
    shift
    "$kvfate" "$1" -h > /dev/null 2>&1 || { echo "$name: this program has no $1" >&2; return 0; }
    echo "$name" >&2
    once "$out/$name.tsv" "$kvfate" corpus "$@" -o > "$out/log.txt" || { cat "$out/log.txt" >&2; exit 1; }
}

horizons=1,$((T / 64)),$((T / 16)),$((T / 4)),$((T / 2)),$((T * 9 / 10))
corpus survival survival "$traces"/full.* --horizons "$horizons"
corpus persistence persistence "$traces"/full.*
corpus overlap overlap "$traces"/full.*
corpus attention-sparsity attention-sparsity "$traces"/full.* --entries kept
corpus attention-sparsity.gkv attention-sparsity "$traces"/gkv.* --entries kept
corpus received.heads received "$traces"/full.* --spread heads
corpus heads heads "$traces"/full.*
corpus sparsity.trimkv sparsity "$traces"/full.* --kind beta
corpus runs.trimkv runs "$traces"/trimkv.*
corpus words.trimkv words "$traces"/full.* --by class
corpus variance.trimkv variance "$traces"/full.*
# The query of the answer is the last one of the prompt: a row for each prompt, named by its seed.
at_the_answer() { # KIND FILE, with the option --weights that $weights holds
    kind=$1 table=$2
    : > "$table"
    for i in $(seq "$needles"); do
        trace=$traces/needle-$kind-$i.kvf
        last=$("$kvfate" tokens "$trace" -o - | awk '!/^#/ && $1 != "token"' | wc -l)
        "$kvfate" dilution "$trace" --tokens "$((last - 1)):$last" --mean ${weights:+--weights "$weights"} -o - |
            awk -v doc="$i" -F '\t' '
                /^#/ { if (doc == 1) print; next }
                !head { for (k = 1; k <= NF; k++) column[$k] = k; head = column["head"]
                        if (doc == 1) print "doc\t" $0 "\tpreferential_share"; next }
                $head == "all" { of = column["compared"] ? $column["compared"] : 0
                                 print doc "\t" $0 "\t" (of > 0 ? $column["preferential"] / of : "nan") }' >> "$table"
    done
}
for kind in short long; do
    weights='' once "$out/needles.$kind.tsv" at_the_answer "$kind"
done
weights=beta once "$out/needles.gates.tsv" at_the_answer long
[ -z "${NULL_GATES:-}" ] || weights=beta once "$out/needles.random-gates.tsv" at_the_answer random
corpus kv-size.dbtrimkv kv-size "$traces"/dbtrimkv.*
corpus kv-size.wgkv kv-size "$traces"/wgkv.*
corpus kv-size.wgkv-code kv-size "$traces"/wgkv.code-*
corpus kv-size.wgkv-markup kv-size "$traces"/wgkv.markup-*
for method in snapkv gkv gkv-local; do
    corpus "density.$method" density "$traces/$method".*
done
# Null checks: the same tables of gates and of a model that learned nothing.
null() { # NAME OPTION...
    name=$1
    shift
    run "$name.$x" "$@" -n 0
}
null_model() { # NAME OPTION...
    once "$traces/$1.$x.kvf" null_model_to "$@"
}
null_model_to() { # NAME OPTION... FILE
    shift
    "$kvfate" run -m "$NULL_MODEL" ${THREADS:+-t "$THREADS"} --overwrite -q "$@" > "$out/log.txt"
}
for text in "$texts"/prose-*.txt "$texts"/code-*.txt "$texts"/markup-*.txt; do
    x=$(basename "$text" .txt)
    if [ -n "${NULL_GATES:-}" ]; then
        null random-gates -f "$text" --method trimkv -B "$everything" --gates "$NULL_GATES" --probes paper,calibration
        null random-kept -f "$text" --method trimkv -B "$B" --gates "$NULL_GATES" --probes evict
        null random-dbtrimkv -f "$text" --method dbtrimkv -B "$B" --gates "$NULL_GATES" --probes evict
    fi
    [ -z "${NULL_WRITE_GATES:-}" ] ||
        null random-wgkv -f "$text" --method wgkv:local=16 -B "$everything" --gates "$NULL_WRITE_GATES" --probes evict
    [ -z "${NULL_MODEL:-}" ] || {
        null_model random-model -f "$text" -n 0 --probes paper,calibration,window -o
        null_model random-model-gkv --ids "$texts/$x.prompt" --force "$texts/$x.rest" --method gkv -B "$B" \
            --probes evict,window -o
    }
done
if [ -n "${NULL_GATES:-}" ]; then
    corpus sparsity.random-gates sparsity "$traces"/random-gates.* --kind beta
    corpus words.random-gates words "$traces"/random-gates.* --by class
    corpus variance.random-gates variance "$traces"/random-gates.*
    corpus runs.random-gates runs "$traces"/random-kept.*
    corpus kv-size.random-dbtrimkv kv-size "$traces"/random-dbtrimkv.*
fi
[ -z "${NULL_WRITE_GATES:-}" ] || corpus kv-size.random-wgkv kv-size "$traces"/random-wgkv.*
if [ -n "${NULL_MODEL:-}" ]; then
    corpus survival.random-model survival "$traces"/random-model.* --horizons "$horizons"
    corpus attention-sparsity.random-model attention-sparsity "$traces"/random-model.* --entries kept
    corpus attention-sparsity.random-model-gkv attention-sparsity "$traces"/random-model-gkv.* --entries kept
    corpus received.random-model received "$traces"/random-model.* --spread heads
    for analysis in persistence overlap heads; do
        corpus "$analysis.random-model" "$analysis" "$traces"/random-model.*
    done
fi
once "$out/dynamics.tsv" "$kvfate" dynamics "$traces"/rollout.* --split rollouts -o > "$out/log.txt"

# ---- quality: KL of every document, in pairs

[ -e "$texts/eval.txt" ] || {
    for text in "$texts"/prose-*.txt "$texts"/code-*.txt "$texts"/markup-*.txt; do
        printf '# %s\n\n' "$(basename "$text" .txt)"
        sed 's/^#/ #/' "$text"
        printf '\n'
    done > "$texts/eval.part"
    mv "$texts/eval.part" "$texts/eval.txt"
}
prompt=$((T / 2)) score=$((T / 16))
documents=$(ls "$texts"/prose-*.txt "$texts"/code-*.txt "$texts"/markup-*.txt | wc -l) # DOCS of each, if given so many
while read -r budget methods; do
    echo "eval at $budget: $methods" >&2
    kv eval --data "$texts/eval.txt" --docs "$documents" --prompt-tokens "$prompt" \
        --score-tokens "$score" --methods "$methods" --budgets "$budget" $gates \
        --state "$out/eval.state" > "$out/log.txt"
done << END
32 dbtrimkv,dbtrimkv:lookahead=5
64 snapkv,adakv,h2o,rkv,gkv,gkv:history=0,keydiff,trimkv,dbtrimkv
128 dbtrimkv,dbtrimkv:lookahead=1
256 snapkv,quest,wgkv-quest,wgkv-snapkv,wgkv-snapkv:tau=0
END
cp "$out/eval.state" "$out/eval-docs.tsv"
[ -z "${NULL_GATES:-}" ] || {
    kv eval --data "$texts/eval.txt" --docs "$documents" --prompt-tokens "$prompt" --score-tokens "$score" \
        --methods trimkv,dbtrimkv --budgets 64 --gates "$NULL_GATES" --state "$out/null.state" > "$out/log.txt"
    cp "$out/null.state" "$out/eval-docs.random-gates.tsv"
}

# NAME.KIND.state of a folder of gates/ablate.py: a table of both kinds of text
[ -z "${ABLATE:-}" ] || for name in trimkv no-capacity linear keys-values bias-6 reverse-kl dbtrimkv \
    untied wgkv no-window lambda-0.04 lambda-0.64; do
    if [ -e "$ABLATE/$name.prose.state" ] && [ -e "$ABLATE/$name.mathematics.state" ]; then
        { cat "$ABLATE/$name.prose.state"; awk '!/^#/ && $1 != "doc"' "$ABLATE/$name.mathematics.state"; } \
            > "$out/eval-docs.$name.tsv"
    else
        rm -f "$out/eval-docs.$name.tsv"
    fi
done

# Write gates trained with and without a window, at thresholds at which both hold some two fifths of the text
[ -z "${ABLATE:-}" ] || for row in wgkv:local=16,tau=0.3 no-window:local=1,tau=0.5; do
    name=${row%%:*}
    [ -e "$ABLATE/$name.safetensors" ] || continue
    kv eval --data "$texts/eval.txt" --docs "$documents" --prompt-tokens "$prompt" \
        --score-tokens "$score" --methods "wgkv:${row#*:}" --budgets "$((prompt + score))" \
        --gates "$ABLATE/$name.safetensors" --state "$out/eval-docs.equal-$name.tsv" > "$out/log.txt"
done

# Documents of one source are no independent units.  The texts stand in eval.txt in the order of their names, which begin with
# their kinds; documents of trainings are of the kind of their file.
sources() { # KINDS FILE: doc_hash and source of the rows of a state file; KINDS: one, or one for each document
    awk -F '\t' -v kinds="$1" '
        BEGIN { n = split(kinds, kind, " ") }
        /^#/ { next }
        !head { head = 1; for (k = 1; k <= NF; k++) column[$k] = k; next }
        column["doc_hash"] { print $column["doc_hash"] "\t" (n == 1 ? kind[1] : kind[$column["doc"] + 1]) }' "$2"
}
{
    sources "$(cd "$texts" && for text in prose-*.txt code-*.txt markup-*.txt; do echo "${text%%-*}"; done | tr '\n' ' ')" \
        "$out/eval-docs.tsv"
    for state in "${ABLATE:-}"/*.state; do
        [ ! -e "$state" ] || { kind=${state%.state}; sources "${kind##*.}" "$state"; }
    done
} | sort -u > "$out/sources.rows"
{ printf 'doc_hash\tsource\n'; cat "$out/sources.rows"; } > "$out/sources.tsv"
rm "$out/sources.rows"

"$kvfate" claims "$out" -o "$out/claims.tsv"
