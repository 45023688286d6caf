#!/bin/sh
# go.sh SOURCE LIBRARY: a Go program with C code, hakmem preloaded and linked: its C memory is hakmem's.
set -eu
source=$1 library=$2
command -v go >/dev/null || { echo "skipped: there is no go"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
# judge WHOSE: what the program says, when it runs on WHOSE malloc.
judge() {
  grep -qx '160000 lines, [0-9]* bytes' "$work/said" || fail "it says: $(cat "$work/said")"
  awk -v whose="$1" 'NR == 2 && index($0, whose) == 1 && (whose == "libc" || ($(NF - 6) > 7000000 && $(NF - 2) < 1000000)) { right = 1 }
    END { exit !right }' "$work/said" || fail "on $1 it says: $(cat "$work/said")"
}

cp "$source/examples/cgo/main.go" "$work"
cd "$work"
export CGO_ENABLED=1 GOFLAGS=-p=2
go build -o plain main.go
CGO_LDFLAGS="-L${library%/*} -lhakmem -Wl,-rpath,${library%/*}" go build -o linked main.go
./plain >said
judge libc
LD_PRELOAD=$library ./plain >said
judge hakmem
./linked >said
judge hakmem
echo "Go's C code runs on hakmem"
