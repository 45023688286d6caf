#!/bin/sh
# embedded.sh SOURCE: hakmem as a part of another project's build, by FetchContent; the project installs its own only.
# Also with the flags of distributions, which ask for LTO.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*: $(cat "$work/log")"; exit 1; }

# As little as shows it: without observers, and not optimised. Warnings that are errors in the project are none in hakmem.
cmake -G Ninja -S "${0%/*}/project" -B "$work/build" -DHAKMEM_SOURCE="$1" -DHAKMEM_OBSERVE=OFF -DHAKMEM_CXX=OFF \
  -DCMAKE_C_FLAGS='-Wpedantic -Wconversion -Werror -Werror=pedantic' -DCMAKE_BUILD_TYPE=None -DCMAKE_INSTALL_PREFIX="$work/tree" >"$work/log" 2>&1 || fail "cannot be configured"
cmake --build "$work/build" >"$work/log" 2>&1 || fail "cannot be built"
for row in 'hakmem 1 1' 'static 1 1' 'core 1 0'; do
  "$work/build/program-${row%% *}" >"$work/log"
  [ "$(cat "$work/log")" = "${row#* }" ] || fail "program-${row%% *}"
done
cmake --install "$work/build" >/dev/null
(cd "$work/tree" && find . -type f) >"$work/log"
[ "$(cat "$work/log")" = ./bin/program-core ] || fail "installed"

cmake -G Ninja -S "${0%/*}/project" -B "$work/lto" -DHAKMEM_SOURCE="$1" -DHAKMEM_OBSERVE=OFF -DCMAKE_BUILD_TYPE=None \
  -DCMAKE_C_FLAGS=-flto=auto -DCMAKE_CXX_FLAGS=-flto=auto >"$work/log" 2>&1 || fail "with LTO: cannot be configured"
cmake --build "$work/lto" --target program-hakmem >"$work/log" 2>&1 || fail "with LTO: cannot be built"
"$work/lto/program-hakmem" >"$work/log"
[ "$(cat "$work/log")" = '1 1' ] || fail "with LTO: program-hakmem"

! command -v musl-gcc >/dev/null ||
  cmake -G Ninja -S "$1" -B "$work/a b" -DCMAKE_TOOLCHAIN_FILE="$1/cmake/musl.cmake" >"$work/log" 2>&1 ||
  fail "for musl, in a folder whose name has a space: cannot be configured"
echo "hakmem is built as a part of another project"
