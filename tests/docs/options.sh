#!/bin/sh
# options.sh TOOL PAGE: the tables of docs/options.md are what the code gives; changed ones are refused. The tool shows
# the options of the environment, and makes no summary of its own.
set -eu
tool=$1 page=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The page does not depend on the environment.
is_fresh() { env HAKMEM_PROFILE=lean HAKMEM_KEEP_MB=7 "$tool" --markdown "$1" | diff -u "$1" -; }

# The positive control: one number, one word, one row less.
sed 's/3600000/3600001/' "$page" >"$work/number"
sed 's/purge/urge/' "$page" >"$work/word"
sed '/HAKMEM_PURGE/d' "$page" >"$work/row"
for changed in number word row; do
  if is_fresh "$work/$changed" >/dev/null; then
    echo "a page with a changed $changed was taken for a fresh one"
    exit 1
  fi
done

is_fresh "$page" || {
  echo "docs/options.md is stale; make it: hak options --markdown docs/options.md >made && mv made docs/options.md"
  exit 1
}

# Without a word last: its output stays for the look at the value.
for word in --nonsense --help ''; do
  # shellcheck disable=SC2086  # a word or none
  HAKMEM_STATS=json "$tool" $word >"$work/said" 2>"$work/errors" || [ "$word" = --nonsense ]
  if grep '^{"hakmem":' "$work/errors"; then echo "it makes a summary of itself ($word)"; exit 1; fi
done
grep -q '^HAKMEM_STATS  *json (set)$' "$work/said" || { echo "HAKMEM_STATS=json is not shown"; exit 1; }
