#!/bin/sh
# The tables that `kvfate claims` asks for (docs/studies/claims.md), from the default model and texts of several sources.  A study whose text has
# the kind "claims" (docs/guide/study.md) runs it.
#
# usage: claims.sh OUT            makes OUT/*.tsv, prints the verdicts; goes on where it was stopped
#
# Set in the environment:
#   KVFATE, THREADS, JOBS       the program, threads, and documents that are run at the same time (1)
#   TEXTS                       folder of SOURCE-N.txt (examples/claims_texts.sh; without it: pages, sources and tables of this repository)
#   PART                        development or held-out: only these documents of TEXTS/texts.tsv
#   SOURCES, DOCS               only these sources; most documents of each (2)
#   WORK                        folder of texts cut to LENGTH, traces and scores, which several OUT may share (OUT)
#   LENGTH, BUDGET              tokens of a text (1024), entries of a head in traces (64)
#   PROBES                      those of the full cache (paper,calibration,window; with paper alone survival and heads are judged)
#   WHAT                        what is run of each document: any of full, kept, memory, eval; and needles, rollouts (all)
#   MEMORY, NULLS               documents of each source for memory (2) and for null checks (2)
#   NEEDLES, SHORT              prompts with a needle of each length (8), tokens of the short ones (a quarter of LENGTH)
#   MODEL, GATES, WRITE_GATES   another model, its retention and its write gates; without gates, claims about gates are not run
#   WATCH                       query heads whose dynamics are recorded (twelve of them)
#   SEED                        is added to the seeds of needles and rollouts (0)
#   FREEZE                      file of `kvfate claims freeze`: other inputs than these are rejected, and the tables carry its SHA-256
#   ABLATE                      folder of gates/claims_trainings.py, for the claims about training
#   NULL_MODEL                  a model of random weights, for null checks
#   NULL_GATES, NULL_WRITE_GATES  random gates, for null checks (tests/data/make_gates.py writes them)
set -eu
[ $# -eq 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
out=$1 work=${WORK:-$1}
kvfate=${KVFATE:-kvfate}
T=${LENGTH:-1024} docs=${DOCS:-2} B=${BUDGET:-64} needles=${NEEDLES:-8} jobs=${JOBS:-1} base=${SEED:-0}
probes=${PROBES:-paper,calibration,window}
what=" ${WHAT:-full kept memory eval needles rollouts} "
here=$(cd "$(dirname "$0")/../.." && pwd) # the sources; an installed package has none
sources_of=$(cd "$(dirname "$0")/.." && pwd)
everything=$((2 * T)) # a budget under which nothing is evicted
texts=$work/text traces=$work/trace parts=$work/part
mkdir -p "$out" "$texts" "$traces" "$parts"
case $kvfate in */*) PATH=$(cd "$(dirname "$kvfate")" && pwd):$PATH ;; esac # the package runs this program
exec 9> "$work/lock"
flock -n 9 || { echo "claims.sh: another run works in $work" >&2; exit 1; }

kv() {
    command=$1
    shift
    "$kvfate" "$command" ${MODEL:+-m "$MODEL"} ${THREADS:+-t "$THREADS"} "$@"
}

# once FILE COMMAND...: the command makes FILE (as its last argument) whole, or nothing.  `set -e` does not hold in it, so a function that it calls
# returns at each call that fails.
once() {
    file=$1
    shift
    [ -e "$file" ] && return 0
    part=$(dirname "$file")/part-$(basename "$file")
    "$@" "$part" && mv "$part" "$file"
}

asked() { case $what in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

# ---- texts of LENGTH tokens

own_texts() { # FOLDER: pages, sources and tables of this repository as prose, code and markup
    n=0
    for file in docs/reference/eval.md docs/reference/format.md docs/reference/gates.md docs/reference/reliability.md; do
        n=$((n + 1))
        cp "$here/$file" "$1/prose-$n.txt"
    done
    n=0
    for file in base/table_io.c base/table.c base/json.c base/opt.c; do
        n=$((n + 1))
        cp "$here/$file" "$1/code-$n.txt"
    done
    for n in 1 2 3; do # every third of the methods with what it needs
        "$kvfate" methods | awk -v n="$n" '
            BEGIN { print "<table>" }
            NF && NR % 3 == n % 3 { print "  <tr>"; for (i = 1; i <= NF; i++) printf "    <td>%s</td>\n", $i; print "  </tr>" }
            END { print "</table>" }' > "$1/markup-$n.txt"
    done
}
from=${TEXTS:-$work/own}
[ -n "${TEXTS:-}" ] || [ -e "$from" ] || { mkdir -p "$from.part"; own_texts "$from.part"; mv "$from.part" "$from"; }

# The inputs are checked and stored.  The answer describes the model: its layers and query heads, whether there are retention gates and write gates,
# and the name of shipped gates for dbtrimkv.
package() {
    PYTHONPATH=$sources_of "${KVFATE_PYTHON:-/usr/bin/python3}" -m kvfate.claims_frozen "$@"
}
about=$(LENGTH=$T BUDGET=$B SEED=$base package begin "$work" "$out" "$from")
read -r layers heads_of_layer trained admits same_gates << END
$about
END

# tokens FILE: how many its prompt has, as a run that may hold one token complains
tokens() {
    { "$kvfate" run ${MODEL:+-m "$MODEL"} -f "$1" -n 0 -c 1 -q --overwrite -o "$work/none.kvf" 2>&1 || :; } |
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

# Names of the documents that are asked for: the first of each source, then the second ones.
chosen=$(for text in "$from"/*-*.txt; do
    name=$(basename "$text" .txt)
    printf '%s\t%s\n' "${name%-*}" "$name"
done | LC_ALL=C sort -k 1,1 -k 2,2 | awk -F '\t' -v part="${PART:-}" -v sources="${SOURCES:-}" -v file="$from/texts.tsv" '
    BEGIN { while (part && (getline line < file) > 0) { split(line, x, "\t"); of[x[1]] = x[3] }
            some = split(sources, names, " "); for (i = 1; i <= some; i++) want[names[i]] = 1 }
    (!part || of[$2] == part) && (!some || $1 in want) { print ++n[$1] "\t" $1 "\t" $2 }' | LC_ALL=C sort -k 1,1n -k 2,2)
list='' taken=''
for line in $(echo "$chosen" | tr '\t' ,); do
    x=${line##*,} source=${line#*,}
    source=${source%%,*}
    n=$(echo "$taken" | tr ' ' '\n' | grep -cx "$source" || :)
    [ "$n" -lt "$docs" ] || continue
    if once "$texts/$x.txt" cut_text "$from/$x.txt"; then list="$list $x" taken="$taken $source"; fi
done
[ -n "$list" ] || { echo "claims.sh: no text of $T tokens" >&2; exit 1; }

# ---- traces

run() { # NAME OPTION...
    name=$1
    shift
    once "$traces/$name.kvf" kv run "$@" --overwrite -q -o > "$work/log.$name" # the text
    rm -f "$work/log.$name"
}

# Names of gates hold no blanks; without them the shipped ones are taken.
retention=${GATES:+--gates $GATES} write=${WRITE_GATES:+--gates $WRITE_GATES}
gates="$retention $write"

has() { [ "$1" = yes ]; }
if has "$trained"; then
    watched="--method trimkv -B $everything $retention" gate=,gate # retention gates that evict nothing
else
    watched='' gate=''
fi
# usable METHOD,...: those of the list for which there are gates
usable() {
    echo "$1" | tr , '\n' | while read -r method; do
        case $method in
            trimkv* | dbtrimkv*) has "$trained" || continue ;;
            wgkv*) has "$admits" || continue ;;
        esac
        printf ',%s' "$method"
    done | cut -c 2-
}

halves() { # NAME: the tokens of a text as a prompt, and as a rest that is fed token by token as if it were generated
    "$kvfate" tokens "$traces/full.$1.kvf" -o - > "$texts/$1.tokens" || return 1
    awk -F '\t' '!/^#/ && $1 != "token" { print $2 }' "$texts/$1.tokens" > "$texts/$1.ids"
    half=$(($(wc -l < "$texts/$1.ids") / 2))
    head -n "$half" "$texts/$1.ids" > "$texts/$1.prompt"
    tail -n "+$((half + 1))" "$texts/$1.ids" > "$2"
}
scores() { # NAME FILE: KL under the methods that claims compare
    { printf '# %s\n\n' "$1"; sed 's/^#/ #/' "$texts/$1.txt"; } > "$texts/$1.eval"
    while read -r budget methods; do
        methods=$(usable "$methods")
        [ -n "$methods" ] || continue
        # shellcheck disable=SC2086 # one option or two
        kv eval --data "$texts/$1.eval" --docs 1 --prompt-tokens "$((T / 2))" --score-tokens "$((T / 16))" \
            --methods "$methods" --budgets "$budget" $gates --state "$parts/$1.state" > /dev/null || return 1
    done << END
32 dbtrimkv,dbtrimkv:lookahead=5
64 snapkv,adakv,h2o,rkv,gkv,gkv:history=0,keydiff,trimkv,dbtrimkv
128 dbtrimkv,dbtrimkv:lookahead=1
256 snapkv,quest,wgkv-quest,wgkv-snapkv,wgkv-snapkv:tau=0
END
    cp "$parts/$1.state" "$2"
}
shared=$here/gates
[ -e "$shared" ] || shared=$(dirname "$0")/share/kvfate/gates # of a wheel
control_scores() { # NAME FILE: the budget shared by all heads or not, with the same gates
    kv eval --data "$texts/$1.eval" --docs 1 --prompt-tokens "$((T / 2))" --score-tokens "$((T / 16))" \
        --methods trimkv,dbtrimkv --budgets 64 --gates "${GATES:-$shared/$same_gates.safetensors}" \
        --state "$parts/$1.same.state" > /dev/null || return 1
    cp "$parts/$1.same.state" "$2"
}
null_scores() { # NAME FILE
    kv eval --data "$texts/$1.eval" --docs 1 --prompt-tokens "$((T / 2))" --score-tokens "$((T / 16))" \
        --methods trimkv,dbtrimkv --budgets 64 --gates "$NULL_GATES" --state "$parts/$1.null.state" > /dev/null || return 1
    cp "$parts/$1.null.state" "$2"
}

# shellcheck disable=SC2086 # gates are an option and its value, or nothing
document() { # NAME MEMORY NULLS
    x=$1 text=$texts/$1.txt
    # Retention gates that evict nothing: the full cache's attention, and what the gates say of it.
    ! asked full || run "full.$x" -f "$text" -n 0 $watched --probes "$probes"
    ! asked kept || ! has "$trained" || {
        run "trimkv.$x" -f "$text" -n 0 --method trimkv -B "$B" $retention --probes evict
        run "dbtrimkv.$x" -f "$text" -n 0 --method dbtrimkv -B "$B" $retention --probes evict
    }
    ! asked kept || ! has "$admits" || run "wgkv.$x" -f "$text" -n 0 --method wgkv:local=16 -B "$everything" $write --probes evict
    ! asked eval || {
        once "$parts/scores.$x" scores "$x"
        ! has "$trained" || once "$parts/same.$x" control_scores "$x"
    }
    [ "$2" = no ] || memory
    [ "$3" = no ] || nulls "$2"
}
# G-KV and the same without its memory, which differ in nothing else; the full cache on the same steps.
# shellcheck disable=SC2086
memory() {
    once "$texts/$x.rest" halves "$x"
    rest="--ids $texts/$x.prompt --force $texts/$x.rest --probes evict,window"
    run "snapkv.$x" $rest -B "$B" --method snapkv
    run "gkv.$x" $rest -B "$B" --method gkv
    run "gkv-local.$x" $rest -B "$B" --method gkv:history=0
    run "full-rest.$x" $rest
}
# Null checks: the same of eviction by chance, and of gates and a model that learned nothing.
# shellcheck disable=SC2086
nulls() { # MEMORY
    [ "$1" = no ] || run "random-rest.$x" $rest -B "$B" --method random
    ! asked kept || run "random.$x" -f "$text" -n 0 --method random -B "$B" --probes evict
    [ -z "${NULL_GATES:-}" ] || {
        ! asked full || run "random-gates.$x" -f "$text" -n 0 --method trimkv -B "$everything" --gates "$NULL_GATES" --probes evict,gate
        ! asked kept || {
            run "random-kept.$x" -f "$text" -n 0 --method trimkv -B "$B" --gates "$NULL_GATES" --probes evict
            run "random-dbtrimkv.$x" -f "$text" -n 0 --method dbtrimkv -B "$B" --gates "$NULL_GATES" --probes evict
        }
        ! asked eval || once "$parts/null.$x" null_scores "$x"
    }
    [ -z "${NULL_WRITE_GATES:-}" ] || ! asked kept ||
        run "random-wgkv.$x" -f "$text" -n 0 --method wgkv:local=16 -B "$everything" --gates "$NULL_WRITE_GATES" --probes evict
    [ -z "${NULL_MODEL:-}" ] || {
        ! asked full || once "$traces/random-model.$x.kvf" null_model -f "$text" -n 0 --probes "$probes" -o
        [ "$1" = no ] || once "$traces/random-model-gkv.$x.kvf" null_model $rest -B "$B" --method gkv -o
    }
}
null_model() { # OPTION... FILE
    "$kvfate" run -m "$NULL_MODEL" ${THREADS:+-t "$THREADS"} --overwrite -q "$@" > /dev/null
}

among() { # NAME N KIND: whether the document is among the first N of its source, and KIND is asked for
    if [ "$2" -gt 0 ] && asked "$3"; then
        for y in $list; do
            [ "${y%-*}" != "${1%-*}" ] || set -- "$1" $(($2 - 1)) "$3"
            [ "$y" = "$1" ] || continue
            [ "$2" -lt 0 ] || { echo yes; return 0; }
        done
    fi
    echo no
}
running='' count=0
finished() { # waits for all documents that are running; stops if one of them failed
    failed=no
    for pid in $running; do wait "$pid" || failed=yes; done
    running=''
    ! has "$failed" || exit 1
}
for x in $list; do
    with=$(among "$x" "${MEMORY:-2}" memory) null=$(among "$x" "${NULLS:-2}" full)
    if [ "$jobs" -le 1 ]; then
        document "$x" "$with" "$null"
    else
        document "$x" "$with" "$null" &
        running="$running $!" count=$((count + 1))
        [ $((count % jobs)) -ne 0 ] || finished
    fi
done
finished

for kind in short long again; do
    asked needles || break
    case $kind in long) length=$T ;; *) length=${SHORT:-$((T / 4))} ;; esac
    for i in $(seq "$needles"); do
        name=$texts/needle-$kind-$i seed=$((base + i))
        [ "$kind" != again ] || seed=$((seed + 1000)) # other prompts of the same length
        [ -e "$name.json" ] || "$kvfate" tasks needle ${MODEL:+-m "$MODEL"} --tokens "$((length - 64))" -s "$seed" -o "$name"
        needle="-f $name.txt --spans $name.json -n 0"
        # shellcheck disable=SC2086
        run "needle-$kind-$i" $needle $watched --probes "evict$gate,dilution"
        # shellcheck disable=SC2086
        [ "$kind" != long ] || [ -z "${NULL_GATES:-}" ] ||
            run "needle-random-$i" $needle --method trimkv -B "$everything" --gates "$NULL_GATES" --probes evict,gate,dilution
    done
done
# Twelve heads, which lie in twelve layers where the model has as many.
watch=L1H0,L3H7,L6H2,L8H5,L11H1,L13H8,L15H4,L18H3,L21H6,L24H0,L26H5,L28H8
[ "$layers,$heads_of_layer" = 30,9 ] || watch=$(seq 0 11 | awk -v layers="$layers" -v heads="$heads_of_layer" '
    { head = "L" int(layers * (2 * $1 + 1) / 24) "H" (5 * $1) % heads }
    !seen[head]++ { printf "%s%s", (NR > 1 ? "," : ""), head }')
for i in 1 2 3 4 5 6 7 8; do
    asked rollouts || break
    for seed in 1 2 3; do
        run "rollout.$i.$seed" -p "Tell a long story that begins on day $i of a journey." -n 96 --temp 0.8 \
            --seed "$((base + seed))" --ignore-eos --probes lean --watch-queries "${WATCH:-$watch}"
    done
done

# ---- tables: a row says of which document and source it is

# by_document TABLE PREFIX ANALYSIS "COLUMNS" "COLUMN=VALUE[,VALUE]..." OPTION...: rows of all traces PREFIX.NAME.kvf
# that are there, with these columns and values; the columns doc, source, nth (of the source) and method are added
options=''
by_document() {
    table=$1 prefix=$2 analysis=$3 columns=$4 keep=$5
    shift 5
    # shellcheck disable=SC2086 # words of a command
    "$kvfate" $analysis -h > /dev/null 2>&1 || { echo "$table: this program has no $analysis" >&2; return 0; }
    : > "$out/part-$table"
    for x in $list; do
        [ -e "$traces/$prefix.$x.kvf" ] || continue
        options=$* once "$parts/$table.$prefix.$x.tsv" rows_of || { rm "$out/part-$table"; return 0; } # without its probes
        cat "$parts/$table.$prefix.$x.tsv" >> "$out/part-$table"
    done
    if [ -s "$out/part-$table" ]; then
        # The metadata are those of the first document.
        awk -F '\t' '/^#/ { if (!head) print; next } $1 == "doc" { if (!head) print; head = 1; next } { print }' \
            "$out/part-$table" > "$out/$table.tsv"
    fi
    rm "$out/part-$table"
}
rows_of() { # FILE, of what by_document says
    # shellcheck disable=SC2086 # options hold no blanks
    "$kvfate" corpus $analysis "$traces/$prefix.$x.kvf" ${THREADS:+-t "$THREADS"} $options -o "$work/all.tsv" \
        > "$work/log.tables" 2>&1 || { sed "s/^/$table: /" "$work/log.tables" >&2; return 1; }
    awk -F '\t' -v columns="$columns" -v keep="$keep" -v doc="$x" -v method="$prefix" '
        /^#/ { print; next }
        !head { head = 1
                for (k = 1; k <= NF; k++) at[$k] = k
                n = split(columns, name, " "); rules = split(keep, rule, " ")
                for (r = 1; r <= rules; r++) { eq = index(rule[r], "="); of[r] = at[substr(rule[r], 1, eq - 1)]; want[r] = "," substr(rule[r], eq + 1) "," }
                printf "doc\tsource\tnth\tmethod"; for (k = 1; k <= n; k++) printf "\t%s", name[k]; print ""
                source = doc; sub(/-[^-]*$/, "", source); number = substr(doc, length(source) + 2); next }
        { for (r = 1; r <= rules; r++) if (!index(want[r], "," $of[r] ",")) next
          printf "%s\t%s\t%s\t%s", doc, source, number, method; for (k = 1; k <= n; k++) printf "\t%s", $at[name[k]]; print "" }' \
        "$work/all.tsv" > "$1"
}

heads="head layer index"
horizons=1,$((T / 64)),$((T / 16)),$((T / 4)),$((T / 2)),$((T * 9 / 10))
for run in full random-model; do
    [ $run = full ] && end='' spread=heads || end=.$run spread=$run
    by_document "survival$end" $run survival "$heads criterion class horizon fraction" "class=all criterion=top64,mass.99" --horizons "$horizons"
    by_document "persistence$end" $run "survival --as persistence" "head criterion class age rate" "head=all class=all criterion=top64"
    by_document "overlap$end" $run overlap "head window p overlap kappa" "head=all window=0"
    by_document "attention-sparsity$end" $run "attention --as sparsity" "$heads form p sparsity" "index=-1 form=window" --entries kept
    by_document "received.$spread" $run "attention --as received" "$heads tokens_share" "" --spread heads
    by_document "heads$end" $run heads "$heads window sink_mass number gist" ""
done
for run in full random-gates; do
    [ $run = full ] && end=trimkv || end=$run
    by_document "sparsity.$end" $run "size --as sparsity" "kind $heads sparsity" "kind=beta" --kind beta
    by_document "words.$end" $run "tokens --as words" "word log_beta" "" --by class
    by_document "variance.$end" $run "retention --as variance" "$heads factor epsilon2" "head=all"
done
by_document runs.trimkv trimkv "where --as runs" "$heads mean_run" ""
by_document runs.random-gates random-kept "where --as runs" "$heads mean_run" ""
for run in dbtrimkv wgkv random-dbtrimkv random-wgkv; do
    by_document "kv-size.$run" "$run" "size --as kv-size" "$heads at size ratio" "at=end"
done
for run in gkv random-rest full-rest random-model-gkv; do
    by_document "attention-sparsity.$run" "$run" "attention --as sparsity" "$heads form p sparsity" "index=-1 form=window" --entries kept
done
for run in snapkv gkv gkv-local random; do
    by_document "density.$run" "$run" where "$heads bin_low bin_high mean" "bin_low=0"
done

# The query of the answer is the last one of the prompt: a row for each prompt, named by its seed.
at_the_answer() { # KIND FILE, with the option --weights that $weights holds
    kind=$1 table=$2
    : > "$table"
    for i in $(seq "$needles"); do
        trace=$traces/needle-$kind-$i.kvf
        "$kvfate" tokens "$trace" -o - > "$work/tokens" || return 1
        last=$(awk '!/^#/ && $1 != "token"' "$work/tokens" | wc -l)
        "$kvfate" dilution "$trace" --tokens "$((last - 1)):$last" --mean ${weights:+--weights "$weights"} -o - > "$work/all.tsv" || return 1
        awk -v doc="$i" -F '\t' '
                /^#/ { if (doc == 1) print; next }
                !head { for (k = 1; k <= NF; k++) column[$k] = k; head = column["head"]
                        if (doc == 1) print "doc\t" $0 "\tpreferential_share"; next }
                $head == "all" { of = column["compared"] ? $column["compared"] : 0
                                 print doc "\t" $0 "\t" (of > 0 ? $column["preferential"] / of : "nan") }' "$work/all.tsv" >> "$table"
    done
}
! asked needles || {
    for kind in short long; do
        weights='' once "$out/needles.$kind.tsv" at_the_answer "$kind"
    done
    weights='' once "$out/needles.short-again.tsv" at_the_answer again
    ! has "$trained" || weights=beta once "$out/needles.gates.tsv" at_the_answer long
    [ -z "${NULL_GATES:-}" ] || weights=beta once "$out/needles.random-gates.tsv" at_the_answer random
}
! asked rollouts || once "$out/dynamics.tsv" "$kvfate" attention --as dynamics "$traces"/rollout.* --split rollouts -o > /dev/null

# ---- quality: KL of every document, in pairs

joined() { # PREFIX FILE: the scores of all documents as one table
    prefix=$1 table=$2
    for y in $list; do
        [ ! -e "$parts/$prefix.$y" ] || cat "$parts/$prefix.$y"
    done | awk '/^#/ { if (!head) print; next } /^doc\t/ { if (!head) print; head = 1; next } { print }' > "$out/part-joined"
    if [ -s "$out/part-joined" ]; then mv "$out/part-joined" "$table"; else rm "$out/part-joined"; fi
}
joined scores "$out/eval-docs.tsv"
joined same "$out/eval-docs.same-gates.tsv"
joined null "$out/eval-docs.random-gates.tsv"

# Tables of trainings, of those that are finished
rm -f "$out"/eval-docs.trained-shuffled.tsv
for table in "${ABLATE:-}"/eval-docs.*.tsv; do
    [ ! -e "$table" ] || cp "$table" "$out"
done

# Documents of one source are no independent units.  Tables of trainings say so themselves.
sources() { # SOURCE FILE: doc_hash and source of the rows of a state file
    awk -F '\t' -v source="$1" '
        /^#/ { next }
        !head { head = 1; for (k = 1; k <= NF; k++) column[$k] = k; next }
        column["doc_hash"] { print $column["doc_hash"] "\t" source }' "$2"
}
{
    for x in $list; do # of each document
        [ ! -e "$parts/scores.$x" ] || sources "${x%-*}" "$parts/scores.$x"
    done
} | LC_ALL=C sort -u > "$out/sources.rows"
{ printf 'doc_hash\tsource\n'; cat "$out/sources.rows"; } > "$out/sources.tsv"
rm "$out/sources.rows"

# Null checks by labels: the same numbers, whose labels are dealt anew with a fixed seed.
"${KVFATE_PYTHON:-/usr/bin/python3}" "$(dirname "$0")/claims_shuffle.py" "$out"

# Each table says which inputs it was made of.
package stamp "$work" "$out"
"$kvfate" claims "$out" -o "$out/claims.tsv"
