#!/bin/sh
# installed.sh BUILD: an installed tree works by itself: the script, the library, the headers, pkg-config.
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >/dev/null
# Nothing in it knows where it was installed.
mv "$work/first" "$work/tree"
"$here/hak.sh" "$work/tree/bin/hak"

cat >"$work/program.c" <<'T'
#include <hakmem/hakmem.h>
#include <stdio.h>
int main(void) {
  void *block = hak_malloc(100);
  printf("%d\n", hak_usable_size(block) >= 100);
  hak_free(block);
  return 0;
}
T
libs=$(echo "$work"/tree/lib*)
pc=$(find "$work/tree" -name hakmem.pc)
PKG_CONFIG_PATH=${pc%/*}
export PKG_CONFIG_PATH
if command -v pkg-config >/dev/null; then
  flags=$(pkg-config --cflags --libs hakmem)
else
  flags="-I$work/tree/include -L$libs -lhakmem"
fi
# shellcheck disable=SC2086  # words
"${CC:-cc}" "$work/program.c" -o "$work/dynamic" $flags
[ "$(LD_LIBRARY_PATH=$(dirname "$(find "$work/tree" -name libhakmem.so)") "$work/dynamic")" = 1 ]
"${CC:-cc}" -static "$work/program.c" -o "$work/static" "-I$work/tree/include" "$(find "$work/tree" -name libhakmem.a)" -pthread
[ "$("$work/static")" = 1 ]

# Run time needs libc only; the C++ operators do not bring libstdc++ in.
needed=$(readelf -d "$(find "$work/tree" -name libhakmem.so)" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
case $needed in
  'libc.so.6 ' | 'libc.so.6 ld-linux'*) ;;
  *) echo "the library needs: $needed"; exit 1 ;;
esac
echo "the installed tree works"
