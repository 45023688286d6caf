#!/bin/sh
# stats.sh TOOL PAGE SCHEMA: the tables of docs/stats.md, and docs/stats.schema.json, are what the code gives; changed
# ones are refused.
set -eu
tool=$1 page=$2 schema=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$tool" --markdown "$page" >"$work/page"
"$tool" --schema >"$work/schema"

# The positive control: one word, one row less, one number.
sed 's/^\(| .*\)arenas/\1areas/' "$page" >"$work/word"
sed '/| .moving_bytes. |/d' "$page" >"$work/row"
for changed in word row; do
  if "$tool" --markdown "$work/$changed" | diff -q "$work/$changed" - >/dev/null; then
    echo "a page with a changed $changed was taken for a fresh one"
    exit 1
  fi
done
sed '/^| name |/d' "$page" >"$work/none"
if "$tool" --markdown "$work/none" >/dev/null 2>&1; then
  echo "a page without tables was taken"
  exit 1
fi
if sed 's/"const": 2/"const": 1/' "$schema" | diff -q - "$work/schema" >/dev/null; then
  echo "a schema with a changed number was taken for a fresh one"
  exit 1
fi

diff -u "$page" "$work/page" || {
  echo "docs/stats.md is stale; make it: hakmem-stats --markdown docs/stats.md >made && mv made docs/stats.md"
  exit 1
}
diff -u "$schema" "$work/schema" || {
  echo "docs/stats.schema.json is stale; make it: hakmem-stats --schema >docs/stats.schema.json"
  exit 1
}
