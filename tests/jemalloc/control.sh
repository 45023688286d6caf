#!/bin/sh
# control.sh PROGRAM: the assertions hold on jemalloc itself; and the sentence about settings that are not obeyed.
set -eu
program=$1
fail() { echo "FAILED: $*"; exit 1; }

words=$(MALLOC_CONF=narenas:1 "$program" --hakmem 2>&1) || fail "with MALLOC_CONF: $words"
case $words in
  *"hakmem: MALLOC_CONF is not obeyed"*) ;;
  *) fail "no word about MALLOC_CONF: $words" ;;
esac
words=$(MALLOC_CONF='' "$program" --hakmem 2>&1) || fail "with an empty MALLOC_CONF: $words"
case $words in *"is not obeyed"*) fail "an empty MALLOC_CONF sets nothing: $words" ;; esac
TEST_JSON=1 "$program" --hakmem | python3 -c 'import json, sys; json.load(sys.stdin)["jemalloc"]["stats"]["allocated"]' ||
  fail "malloc_stats_print: no JSON"

for library in /usr/lib/*/libjemalloc.so.2 /usr/lib*/libjemalloc.so.2; do
  [ -f "$library" ] || continue
  LD_PRELOAD=$library "$program" || fail "on jemalloc itself"
  exit 0
done
echo "skipped: there is no libjemalloc.so.2 (Debian: libjemalloc2)"
exit 77
