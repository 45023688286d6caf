#!/bin/sh
# lint.sh CHECK [--fix | --long]: one check of the sources. CHECK: format, tidy, shell, python or headers.
# Ends with 77 when the checker is not there; `hak test` installs them.
set -eu
cd "$(dirname "$0")/../.."
tools=build/lint/bin

skip() { echo "$1"; exit 77; }
sources() { find include src observe compat tools bench tests packaging examples -type f "$@" 2>/dev/null | sort; }

case ${1-} in
  format)
    [ -x $tools/clang-format ] || skip "there is no $tools/clang-format"
    if [ "${2-}" = --fix ]; then
      sources -name '*.[ch]' -o -name '*.cc' | xargs $tools/clang-format -i
    else
      wrong=$(sources -name '*.[ch]' -o -name '*.cc' | xargs $tools/clang-format --dry-run 2>&1 |
        sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: .*/\1/p' | sort -u)
      [ -z "$wrong" ] || { printf 'not formatted (lint.sh format --fix does it):\n%s\n' "$wrong"; exit 1; }
    fi
    ;;
  tidy)
    [ -x $tools/clang-tidy ] || skip "there is no $tools/clang-tidy"
    [ -f build/release/compile_commands.json ] || skip "there is no build/release"
    sources -path 'src/*.c' -o -path 'observe/*.c' -o -path 'compat/*.c' -o -path 'tools/*.c' |
      python3 -B tests/lint/tidy.py $tools/clang-tidy build/release ${2:+"$2"}
    ;;
  shell)
    command -v shellcheck >/dev/null || skip "there is no shellcheck"
    sources -name '*.sh' | xargs shellcheck -x hak .ci/run
    ;;
  python)
    ruff=build/lab-venv/bin/ruff
    [ -x $ruff ] || skip "there is no $ruff"
    if [ "${2-}" = --fix ]; then
      $ruff check -q --fix lab tests/lab packaging/python bench/runs.py && $ruff format -q lab tests/lab packaging/python bench/runs.py
    else
      $ruff check -q --output-format concise lab tests/lab packaging/python bench/runs.py && $ruff format -q --check lab tests/lab packaging/python bench/runs.py
    fi
    ;;
  headers)
    # A header is an interface: it compiles alone.
    bad=0
    for header in $(sources -path 'src/*.h' -o -path 'observe/*.h' -o -path 'compat/*.h' -o -path 'tools/*.h' -o -path 'include/*.h'); do
      echo "#include \"$header\"" | ${CC:-cc} -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -Iinclude -Isrc -Iobserve -Icompat -I. \
        -fsyntax-only -x c - || { echo "$header does not compile alone"; bad=1; }
    done
    exit $bad
    ;;
  *) echo "usage: lint.sh format|tidy|shell|python|headers [--fix | --long]" >&2; exit 2 ;;
esac
