#!/bin/sh
# abi.sh SOURCE LIBRARY [--write]: the binary interface of libhakmem.so is the one that packaging/libhakmem.abi records.
# The sources that define what is exported are compiled with types for it; the library that is shipped must export the same
# names. --write records what is there: then CHANGELOG.md says so, and what breaks programs needs another SONAME.
set -eu
source=$1 library=$2 write=${3-}
stored=$source/packaging/libhakmem.abi
case $(uname -m) in
  x86_64) ;;
  *) echo "skipped: the interface is recorded for x86-64"; exit 77 ;;
esac
if ! command -v abidw >/dev/null; then
  echo "skipped: abidw is not here (Debian: abigail-tools)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
same() { abidiff --no-default-suppression "$1" "$2" >"$work/report" 2>&1; }
# The names that an ABI file records, and those that a library exports.
recorded() { sed -n "s/^ *<elf-symbol name='\([^']*\)'.*/\1/p" "$1" | LC_ALL=C sort -u; }
# Those whose types it records.
described() { sed -n "s/.* elf-symbol-id='\([^']*\)'.*/\1/p" "$1" | LC_ALL=C sort -u; }
exported() { nm -D --defined-only "$1" | awk '{ print $3 }' | LC_ALL=C sort -u; }
soname() { readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'; }

cd "$source"
set -- -w -g -O0 -fPIC -fvisibility=hidden -fno-builtin -D_GNU_SOURCE -Iinclude -Isrc -Iobserve -I.
exported "$library" >"$work/shipped"
# The objects of the library's build tell which sources these are. All else is taken from the static library, without types.
c=$(find "${library%/lib/*}/src" -name '*.c.o' -exec nm -A --defined-only {} + |
  awk 'NR == FNR { is[$1]; next }
    $NF in is { sub(/\.o:.*/, ""); sub(/.*\.dir\//, ""); print /^__/ ? substr($0, 4) : "src/" $0 }' "$work/shipped" - |
  LC_ALL=C sort -u)
g++ "$@" -std=c++17 -c src/api/override_cxx.cc -o "$work/operators.o"
# shellcheck disable=SC2086  # words
gcc "$@" -std=c17 -shared -Wl,-soname,"$(soname "$library")" $c "$work/operators.o" "${library%.so*}.a" -o "$work/libhakmem.so"
abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --drop-private-types --drop-undefined-syms \
  --exported-interfaces-only --type-id-style hash --headers-dir include/hakmem "$work/libhakmem.so" >"$work/now.abi"
if [ "$write" = --write ]; then
  cp "$work/now.abi" "$stored"
  exit
fi
recorded "$stored" | diff - "$work/shipped" || fail "the library exports other names than $stored records"
described "$stored" >"$work/described"
described "$work/now.abi" | diff "$work/described" - || fail "other functions have types than $stored records"
same "$stored" "$work/now.abi" || fail "the interface has changed; abi.sh --write records it: $(cat "$work/report")"

# The control: a member of a structure that moves and a function that goes are noticed.
sed "/<class-decl name='hak_process_stats'/,/<\/class-decl>/s/layout-offset-in-bits='64'/layout-offset-in-bits='96'/" \
  "$stored" >"$work/moved.abi"
same "$stored" "$work/moved.abi" && fail "a member that moves is not noticed"
grep -q "hak_process_stats" "$work/report" || fail "a member that moves: $(cat "$work/report")"
grep -v "<elf-symbol name='hak_trim'" "$stored" >"$work/gone.abi"
same "$stored" "$work/gone.abi" && fail "a function that goes is not noticed"
grep -q 'hak_trim' "$work/report" || fail "a function that goes: $(cat "$work/report")"
echo "the binary interface is the recorded one"
