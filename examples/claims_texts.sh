#!/bin/sh
# Texts of thirteen sources for python/kvfate/claims.sh: OUT/SOURCE-N.txt of BYTES bytes, and OUT/texts.tsv (name, source, part).
#
# usage: claims_texts.sh OUT       goes on where it was stopped
#
# Most come from what a Debian machine and this repository hold; the model writes two of the sources itself. None is committed.
# A third of the texts of each source is held out for the last run: those whose names have the least SHA-256.
# Set in the environment:
#   KVFATE, THREADS               the program, and threads
#   DOCS, BYTES                   texts of each source (6), bytes of a text (8192)
#   ENCYCLOPEDIA                  a file of articles, such as WikiText-2 (its source is left out without it)
#   MATHEMATICS                   JSONL of problems with "question" and "answer", such as GSM8K (likewise)
#   MODEL                         another model
#   SOURCES                       some of the sources alone
set -eu
[ $# -eq 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
out=$1
kvfate=${KVFATE:-kvfate}
docs=${DOCS:-6} bytes=${BYTES:-8192}
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"

# has_copy FILE: succeeds if a text has the hash of the file. Packages of one source have the same licence and the same changes.
has_copy() {
    sum=$(sha256sum < "$1")
    sha256sum "$out"/*-*.txt 2> /dev/null | grep -q "^${sum%% *} "
}

# put SOURCE N: standard input, cut to BYTES; fails if that is too short, or is a text already
put() {
    file=$out/$1-$2.txt
    head -c "$bytes" | iconv -c -f UTF-8 -t UTF-8 > "$file.part"
    if [ "$(wc -c < "$file.part")" -ge $((bytes * 7 / 8)) ] && ! has_copy "$file.part"; then mv "$file.part" "$file"; else rm "$file.part"; return 1; fi
}

# take SOURCE FILE...: the first DOCS files that are long enough, from their second line on
take() {
    source=$1 i=0
    shift
    for file; do
        [ "$i" -lt "$docs" ] || break
        [ -e "$out/$source-$i.txt" ] || case $file in
            *.gz) gzip -dc "$file" ;;
            *) cat "$file" ;;
        esac 2> /dev/null | tail -n +2 | put "$source" "$i" || continue
        i=$((i + 1))
    done
}

# pieces SOURCE: DOCS stretches of standard input, which lie as far apart as they can
pieces() {
    cat > "$out/$1.whole"
    size=$(wc -c < "$out/$1.whole") i=0
    while [ "$i" -lt "$docs" ]; do
        [ -e "$out/$1-$i.txt" ] || tail -c "+$((i * size / docs + 1))" "$out/$1.whole" | tail -n +2 | put "$1" "$i" ||
            echo "claims_texts.sh: $1 is too short for text $i, or repeats another text" >&2
        i=$((i + 1))
    done
    rm "$out/$1.whole"
}

ask() { # PROMPT TOKENS SEED: what the model answers
    "$kvfate" generate ${MODEL:+-m "$MODEL"} ${THREADS:+-t "$THREADS"} -p "$1" -n "$2" --temp 0.8 --top-p 0.95 -s "$3" -q
}

wanted() { case " ${SOURCES:-$1} " in *" $1 "*) ;; *) return 1 ;; esac; }

! wanted encyclopedia || [ -z "${ENCYCLOPEDIA:-}" ] || pieces encyclopedia < "$ENCYCLOPEDIA"
! wanted mathematics || [ -z "${MATHEMATICS:-}" ] ||
    sed 's/^{"question": *"//; s/", *"answer": *"/\n/; s/"}$/\n/; s/\\n/\n/g; s/\\"/"/g; s/<<[^>]*>>//g' "$MATHEMATICS" | pieces mathematics
# Names are split at blanks, on purpose; none of these has one.
# shellcheck disable=SC2046,SC2012
{
    ! wanted code || take code $(ls -S "$here"/libtrace/*.c "$here"/base/*.c)
    ! wanted python || take python $(ls -S /usr/lib/python3/dist-packages/*/*.py /usr/lib/python3*/[a-z]*.py 2> /dev/null | awk 'NR % 7 == 1')
    ! wanted shell || take shell $(ls -S /var/lib/dpkg/info/*.postinst /usr/bin/*.sh "$here"/examples/*.sh "$here"/tests/*.sh 2> /dev/null)
    ! wanted licence || take licence $(ls -S /usr/share/common-licenses/* /usr/share/doc/*/copyright | awk 'NR % 3 == 1')
    ! wanted manual || take manual $(ls -S /usr/share/man/man[1358]/*.gz | awk 'NR % 11 == 1')
    ! wanted changes || take changes $(ls -S /usr/share/doc/*/changelog*.gz | awk 'NR % 5 == 1')
    ! wanted tables || take tables $(ls -S "$here"/tests/figures/tables/*.tsv.gz /usr/share/zoneinfo/zone1970.tab | awk 'NR % 3 == 1')
    ! wanted markup || take markup $(find /usr/share/doc /usr/share/help -name '*.html' -size +12k 2> /dev/null | sort | awk 'NR % 19 == 1')
    ! wanted guide || take guide $(ls -S "$here"/docs/reference/*.md "$here"/docs/guide/*.md "$here"/docs/studies/*.md | awk 'NR % 2')
}
# What the model writes: one long answer, and talks of several questions with a short answer each.
answer() {
    case $1 in
    0) echo "Explain in detail how a sailing ship is built, from the keel to the mast." ;;
    1) echo "Tell the story of a village that moves up a mountain, year after year." ;;
    2) echo "Write an essay on why cities grow beside rivers." ;;
    3) echo "Describe the life of a bee colony through all seasons." ;;
    4) echo "Compare three ways to store food for a winter, and give recipes." ;;
    *) echo "Write the diary of a lighthouse keeper, number $1, over ten days." ;;
    esac
}
questions() {
    cat << 'END'
What can I cook with rice, two eggs and an onion?
My bicycle makes a noise when I pedal. What should I look at first?
How do I write a polite letter to a landlord about a broken window?
Which plants grow well in a dark room?
Can you plan a day in a town that I have never seen?
Why is the sky red in the evening?
How should a beginner learn to play chess?
What is the difference between a loan and a mortgage?
My child does not want to sleep. What helps?
How do I keep a diary for more than a week?
END
}
i=0
while [ "$i" -lt "$docs" ]; do
    # Seeds follow one another until the text is long enough.
    if wanted answers && [ ! -e "$out/answers-$i.txt" ]; then
        : > "$out/answers.raw"
        s=0
        while [ "$(wc -c < "$out/answers.raw")" -lt "$bytes" ] && [ "$s" -lt 40 ]; do
            ask "$(answer "$i")" 900 "$((100 * i + s))" >> "$out/answers.raw"
            s=$((s + 1))
        done
        put answers "$i" < "$out/answers.raw"
    fi
    if wanted dialogue && [ ! -e "$out/dialogue-$i.txt" ]; then
        : > "$out/dialogue.raw"
        s=0
        while [ "$(wc -c < "$out/dialogue.raw")" -lt "$bytes" ] && [ "$s" -lt 80 ]; do
            line=$(questions | sed -n "$(((3 * i + s) % 10 + 1))p")
            printf 'Guest: %s\nHost: %s\n' "$line" "$(ask "$line" 120 "$((1000 + 100 * i + s))")" >> "$out/dialogue.raw"
            s=$((s + 1))
        done
        put dialogue "$i" < "$out/dialogue.raw"
    fi
    i=$((i + 1))
done
rm -f "$out"/*.raw

for text in "$out"/*-*.txt; do
    name=$(basename "$text" .txt)
    printf '%s\t%s\t%s\n' "${name%-*}" "$(printf %s "$name" | sha256sum | cut -c 1-16)" "$name"
done | LC_ALL=C sort | awk -F '\t' '
    { if ($1 in n) n[$1]++; else { n[$1] = 1; order[++sources] = $1 }; name[$1, n[$1]] = $3 }
    END { print "name\tsource\tpart"
          for (s = 1; s <= sources; s++) for (i = 1; i <= n[order[s]]; i++)
              print name[order[s], i] "\t" order[s] "\t" (3 * i < n[order[s]] + 3 ? "held-out" : "development") }' > "$out/texts.tsv"
