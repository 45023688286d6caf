#!/bin/sh
# runs.sh SOURCE LIBRARY: bench/runs.py with one program and little work; and a library that cannot be loaded is noticed.
set -eu
runs=$1/bench/runs.py library=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v redis-benchmark >/dev/null || { echo "skipped: there is no redis"; exit 77; }
printf 'Head\n<!-- runs -->\nold\n<!-- end runs -->\nTail\n' >"$work/page"
"$runs" --work 1 --seconds 1 --rounds 1 --write "$work/page" "$library" redis || { echo "FAILED: redis"; exit 1; }
grep -qx '| redis, redis-benchmark | \([2-9]\|[1-9][0-9][0-9]*\) | [0-9.]*, [0-9.]* | [0-9]*, [0-9]* | [0-9]*, [0-9]* |' "$work/page" ||
  { echo "FAILED: the row: $(cat "$work/page")"; exit 1; }
[ "$(grep -c 'Head\|old\|Tail' "$work/page")" = 2 ] || { echo "FAILED: the page: $(cat "$work/page")"; exit 1; }
echo 'no library' >"$work/none"
if "$runs" --work 1 --rounds 1 "$work/none" redis >"$work/out" 2>&1; then echo "FAILED: the control passed"; exit 1; fi
grep -q 'it ran without the library' "$work/out" || { echo "FAILED: the control: $(cat "$work/out")"; exit 1; }
