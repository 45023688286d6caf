#!/bin/sh
# installed.sh BUILD: an installed tree works by itself, wherever it is moved: the script, the library, the headers,
# pkg-config, find_package.
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; exit 1; }
# says WANTED PROGRAM: whether hak_malloc works, and whether malloc is hakmem's.
says() { [ "$("$2")" = "$1" ] || fail "$2 says '$("$2")', not '$1'"; }

cmake --install "$build" --prefix "$work/first" >/dev/null
# Nothing in it knows where it was installed.
mv "$work/first" "$work/tree"
! grep -rIl -e "$work" -e "$build" "$work/tree" || fail "files of the tree name the folder it was made in"
# front.hak runs the whole demonstration. Here it is shown that the installed program is found and judged.
mixed=$work/tree/libexec/hakmem/random_mixed
mv "$mixed" "$mixed-whole"
# shellcheck disable=SC2016  # a text for the script
printf '#!/bin/sh\nexec "$0-whole" --json 200000 400 1\n' >"$mixed"
chmod +x "$mixed"
"$here/hak.sh" "$work/tree/bin/hak"
mv "$mixed-whole" "$mixed"

lib=$(find "$work/tree" -name libhakmem.so)
LD_LIBRARY_PATH=${lib%/*}
PKG_CONFIG_PATH=$LD_LIBRARY_PATH/pkgconfig
export LD_LIBRARY_PATH PKG_CONFIG_PATH
program=$here/project/program.c
if command -v pkg-config >/dev/null; then
  # shellcheck disable=SC2046  # words
  "${CC:-cc}" "$program" -o "$work/by-pkg-config" $(pkg-config --cflags --libs hakmem)
  says '1 1' "$work/by-pkg-config"
  # shellcheck disable=SC2046  # words
  "${CC:-cc}" -flto -Wl,--as-needed "${program%/*}/plain.c" -o "$work/plain" $(pkg-config --cflags --libs hakmem)
  says 1 "$work/plain"
  # shellcheck disable=SC2046  # words
  "${CC:-cc}" -flto -static "${program%/*}/plain.c" -o "$work/plain" $(pkg-config --static --cflags --libs hakmem)
  says 1 "$work/plain"
else
  echo "not checked with pkg-config, which is not here"
fi
"${CC:-cc}" -static "$program" -o "$work/static" "-I$work/tree/include" "${lib%.so}.a" -pthread
says '1 1' "$work/static"
# An older C++ is named; errors of the library's headers would not tell.
printf '#include <hakmem/hakmem.hpp>\n' >"$work/header.cc"
for standard in 17 '17 -fno-exceptions -fno-rtti' 14; do
  # shellcheck disable=SC2086  # words
  "${CXX:-c++}" -std=c++$standard -fsyntax-only "-I$work/tree/include" "$work/header.cc" 2>"$work/log" || echo "is refused" >>"$work/log"
  case $standard:$(cat "$work/log") in
    17*: | 14:*'hakmem.hpp needs C++17'*'is refused') ;;
    *) fail "hakmem.hpp as C++$standard: $(cat "$work/log")" ;;
  esac
done
# With LTO the linker learns late that a program calls malloc.
"${CC:-cc}" -flto -Wl,-u,malloc "${program%/*}/plain.c" -o "$work/plain" "${lib%.so}.a" -pthread
says 1 "$work/plain"
# jemalloc's calls, for a program that was written for jemalloc. Some builds have no such library.
if [ -e "${lib%.so}-jemalloc.so" ]; then
  "${CC:-cc}" -D_GNU_SOURCE -fno-builtin "$here/../jemalloc/calls.c" -o "$work/jemalloc" "-I$work/tree/include" \
    "-I$work/tree/include/hakmem" "-L${lib%/*}" -lhakmem-jemalloc -pthread
  "$work/jemalloc" --hakmem >"$work/log" 2>&1 || fail "jemalloc's calls: $(cat "$work/log")"
fi

cmake -S "$here/project" -B "$work/project" -DCMAKE_PREFIX_PATH="$work/tree" -DHAKMEM_WANTED=0.1 >"$work/log" || fail "$(cat "$work/log")"
cmake --build "$work/project" >"$work/log" || fail "$(cat "$work/log")"
says '1 1' "$work/project/program-hakmem"
says '1 1' "$work/project/program-static"
says '1 0' "$work/project/program-core"
cmake "$work/project" -DCMAKE_C_FLAGS=-flto >"$work/log" || fail "$(cat "$work/log")"
cmake --build "$work/project" >"$work/log" || fail "$(cat "$work/log")"
says 1 "$work/project/plain-hakmem"
says 1 "$work/project/plain-static"
cmake "$work/project" -DHAKMEM_WANTED=9 >"$work/log" 2>&1 && fail "find_package took it for version 9"
grep -q 'version: 0' "$work/log" || fail "find_package of version 9 said: $(cat "$work/log")"
# A component is a target. components WORD...: what find_package says of them.
components() { cmake "$work/project" -DHAKMEM_WANTED=0.1 "-DHAKMEM_COMPONENTS=$*" >"$work/log" 2>&1; }
components 'COMPONENTS;static;core;OPTIONAL_COMPONENTS;nonsense' || fail "find_package by components: $(cat "$work/log")"
! components 'COMPONENTS;static;nonsense' || fail "find_package found a component 'nonsense'"
grep -q 'no target hakmem::nonsense' "$work/log" || fail "find_package of a nonsense said: $(cat "$work/log")"

# What was made without ncurses, or without any tool, says which.
hak=$work/tree/bin/hak
misses() { case $("$hak" "$1" 2>&1) in *"was made without $2"*) ;; *) fail "hak $1 without $2: $("$hak" "$1" 2>&1)" ;; esac }
rm -f "$work/tree/bin/hakmem-top"
misses top ncurses
rm "$work/tree/bin/hakmem-live"
misses top tools
misses stats tools

# gdb needs the section (src/hakmem.ld.in).
readelf -SW "$lib" | grep -q ' \.text  *PROGBITS' || fail "the library has no section .text"

# Run time needs libc only; the C++ operators do not bring libstdc++ in.
needed=$(readelf -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
case $needed in
  'libc.so.6 ' | 'libc.so.6 ld-linux'*) ;;
  *) fail "the library needs: $needed" ;;
esac
echo "the installed tree works"
