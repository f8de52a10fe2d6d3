#!/bin/sh
# What a program outside needs: the installed headers, the two libraries and
# kvftrace.pc, and nothing else.  Exported are the functions of the headers only.
#     check_install.sh SOURCE BUILD SHARED_LIBRARY KVFATE
set -eu
source=$1 build=$2 shared=$3 kvfate=$4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# ---- names: those declared are those exported, and no other
cat "$source"/libtrace/include/kvf/trace.h "$source"/libtrace/include/kvf/copy.h "$source"/base/include/kvf/err.h \
    "$build"/libtrace/include/kvf/version.h |
    tr '\n' ' ' | sed 's|/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/||g' |
    grep -oE '\bkvf_[a-z0-9_]+\(' | tr -d '(' | sort -u > "$dir/declared"
nm -D --defined-only "$shared" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u > "$dir/exported"
versions=$(nm -D --defined-only --with-symbol-versions "$shared" | sed -n 's/.*@//p' | sort -u)
[ "$versions" = KVFTRACE_0 ] || { echo "versions of symbols: $versions"; exit 1; }
diff "$dir/declared" "$dir/exported" || { echo "declared (<) and exported (>) differ"; exit 1; }
[ "$(wc -l < "$dir/exported")" -ge 25 ] || { echo "hardly anything is exported"; exit 1; }

# ---- a copy as it is installed
DESTDIR="$dir/root" meson install -C "$build" --no-rebuild > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
pc=$(find "$dir/root" -name kvftrace.pc)
prefix=$(sed -n 's/^prefix=//p' "$pc")
export PKG_CONFIG_PATH="${pc%/*}"
cflags=$(pkg-config --cflags --define-variable=prefix="$dir/root$prefix" kvftrace)
libs=$(pkg-config --libs --define-variable=prefix="$dir/root$prefix" kvftrace)
libdir=$(pkg-config --variable=libdir --define-variable=prefix="$dir/root$prefix" kvftrace)

# ---- one version: of the project, the headers, the program, and both libraries
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$source/meson.build")
soname=libkvftrace.so.${version%%.*}
cat > "$dir/version.c" << 'END'
#include <kvf/version.h>
#include <stdio.h>
int main(void)
{
    printf("%d.%d.%d %s %s\n", KVF_VERSION_MAJOR, KVF_VERSION_MINOR, KVF_VERSION_PATCH,
           KVF_VERSION_STRING, kvf_version());
}
END
# shellcheck disable=SC2086
${CC:-cc} -std=c11 "$dir/version.c" $cflags $libs -o "$dir/version"
is() { [ "$2" = "$3" ] || { echo "$1: $2, not $3"; exit 1; }; }
is "header and library" "$(LD_LIBRARY_PATH=$libdir "$dir/version")" "$version $version $version"
is "program" "$("$kvfate" --version)" "kvfate $version"
is "kvftrace.pc" "$(pkg-config --modversion kvftrace)" "$version"
is "soname" "$(readelf -d "$shared" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" "$soname"
ls "$libdir/libkvftrace.so.$version" "$libdir/$soname" "$libdir/libkvftrace.a" > /dev/null

# ---- the examples against what is installed, shared and static
export LD_LIBRARY_PATH="$libdir"
for kind in shared static; do
    mkdir "$dir/$kind"
    link=$libs
    [ $kind = shared ] || link="$libdir/libkvftrace.a -lzstd -lxxhash"
    set --
    for example in "$source"/examples/*.c; do
        name=${example##*/}
        lines=$(wc -l < "$example")
        [ "$lines" -lt 100 ] || { echo "$name: $lines lines, not under 100"; exit 1; }
        # shellcheck disable=SC2086
        ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror "$example" $cflags $link -pthread -o "$dir/$kind/${name%.c}"
        set -- "$@" "$dir/$kind/${name%.c}"
    done
    sh "$source/examples/run.sh" "$@" "$kvfate" > "$dir/log" 2>&1 || { echo "$kind:"; cat "$dir/log"; exit 1; }
done
unset LD_LIBRARY_PATH

# ---- each header alone, as C11 and as C++
for h in err trace copy schema version; do
    echo "#include <kvf/$h.h>" > "$dir/one.c"
    # shellcheck disable=SC2086
    ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror $cflags -fsyntax-only "$dir/one.c"
    command -v c++ > /dev/null || continue
    # shellcheck disable=SC2086
    c++ -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror $cflags -fsyntax-only "$dir/one.c"
done
