#!/bin/sh
# go.sh SOURCE LIBRARY: a Go program with C code, hakmem preloaded and linked: its C memory is hakmem's.
set -eu
source=$1 library=$2
command -v go >/dev/null || { echo "skipped: there is no go"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
# The highest heap that a report tells of; nothing without a report.
peak() { sed -n 's/^{"hakmem".*"heap_peak_bytes":\([0-9]*\).*/\1/p' "$work/report"; }

cp "$source/examples/cgo/main.go" "$work"
cd "$work"
export CGO_ENABLED=1 GOFLAGS=-p=2
go build -o plain main.go
CGO_LDFLAGS="-L${library%/*} -lhakmem -Wl,-rpath,${library%/*}" go build -o linked main.go
export HAKMEM_STATS=json
expected=$(./plain 2>"$work/report")
case $expected in
  160000\ lines,*) ;;
  *) fail "it says '$expected'" ;;
esac
[ -z "$(peak)" ] || fail "the control: it runs on hakmem without being told to"
[ "$(LD_PRELOAD=$library ./plain 2>"$work/report")" = "$expected" ] || fail "preloaded: $(cat "$work/report")"
[ "$(peak)" -gt 8000000 ] || fail "preloaded: the heap had $(peak) bytes"
[ "$(./linked 2>"$work/report")" = "$expected" ] || fail "linked: $(cat "$work/report")"
[ "$(peak)" -gt 8000000 ] || fail "linked: the heap had $(peak) bytes"
echo "Go's C code runs on hakmem"
