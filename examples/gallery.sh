#!/bin/sh
# The pictures of docs/reference/gallery.md, from the default model, by the commands that stand there.
#
# usage: gallery.sh OUT [all]     all: also the commands whose figures are not shown
#
# Files go to OUT.  A command that has run there is not run again: OUT/done lists them.  Pictures get the
# largest --dpi of the list below that keeps them within some 250 KB.
# Set in the environment:
#   KVFATE                        the program
#   DPI                           the list (220 200 180 150 130 110 100 90 80 70)
#   PAGE                          another page of commands
set -eu
[ $# -ge 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
page=${PAGE:-$here/docs/reference/gallery.md}
case $page in /*) ;; *) page=$PWD/$page ;; esac
program=${KVFATE:-kvfate}
mkdir -p "$1"
cd "$1"
for name in examples gates LICENSE; do
    [ -e "$name" ] || ln -s "$here/$name" "$name"
done
touch done

kvfate() { "$program" "$@" ${dpi:+--dpi "$dpi"}; }

# draw LINE: the sharpest picture that is small enough
draw() {
    picture=${1##* -o }
    picture=${picture%% *}
    for dpi in ${DPI:-220 200 180 150 130 110 100 90 80 70}; do
        eval "$1" > log.txt || return 1
        [ "$(wc -c < "$picture")" -gt 260000 ] || break
    done
    echo "$dpi dpi: $picture" >&2
}

# Indented blocks of the page; a comment begins with two blanks and a hash.
sed -n 's/^    //p' "$page" | sed 's/  *# .*//' > commands
while read -r line; do
    case $line in *'-o '*.png*) ;; *'-o '*.pdf*|*'-o '*.html*) [ "${2:-}" = all ] || continue ;; esac
    ! grep -qxF -e "$line" done || continue
    echo "$line" >&2
    dpi=
    case $line in
    *'-o '*.png*) draw "$line" < /dev/null ;;
    *) eval "$line" < /dev/null > log.txt ;;
    esac || { cat log.txt >&2; echo "gallery.sh: failed: $line" >&2; exit 1; }
    echo "$line" >> done
done < commands
