#!/bin/sh
# stats.sh TOOL PAGE SCHEMA: docs/stats.md and docs/stats.schema.json are what the table gives; changed ones are refused.
set -eu
tool=$1 page=$2 schema=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$tool" --markdown >"$work/page"
"$tool" --schema >"$work/schema"

# The positive control: one word, one row less, one number.
sed 's/arenas/areas/' "$page" >"$work/word"
sed '/| .moving_bytes. |/d' "$page" >"$work/row"
for changed in word row; do
  if diff -q "$work/$changed" "$work/page" >/dev/null; then
    echo "a page with a changed $changed was taken for a fresh one"
    exit 1
  fi
done
if sed 's/"const": 2/"const": 1/' "$schema" | diff -q - "$work/schema" >/dev/null; then
  echo "a schema with a changed number was taken for a fresh one"
  exit 1
fi

diff -u "$page" "$work/page" || { echo "docs/stats.md is stale; make it: hakmem-stats --markdown >docs/stats.md"; exit 1; }
diff -u "$schema" "$work/schema" || {
  echo "docs/stats.schema.json is stale; make it: hakmem-stats --schema >docs/stats.schema.json"
  exit 1
}
