#!/bin/sh
# protocol.sh MODEL FAULTS [--long]: checks MODEL.pml in all interleavings, then that each of its broken variants
# 1..FAULTS is refused. --long: inbox.pml has two strangers, not one. A broken variant always has two, because one does
# not find each fault.
set -eu
model=$1
faults=$2
strangers=1
optimise=-O0 # the search takes a second, an optimised compilation four
# Which process steps first does not matter to a search of all states. With the last one first, a fault that needs two
# strangers is found in 40,000 states, not three million.
order=-DREVERSE
if [ "${3-}" = --long ]; then strangers=2 optimise="-O2 -DCOLLAPSE"; fi
here=$(cd "$(dirname "$0")" && pwd)
command -v spin >/dev/null || { echo "skipped: no spin (Debian package spin)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# check N: prints spin's verdict on BROKEN=N; the result is pan's number of errors, 0 or 1.
check() {
  spin "-DBROKEN=$1" "-DSTRANGERS=$strangers" -a "$here/$model.pml" >spin.log || { cat spin.log; exit 2; }
  # shellcheck disable=SC2086  # words
  cc $optimise $order -DSAFETY -DNOFAIR -DMEMLIM=4000 -o pan pan.c
  ./pan -m1000000 >pan.log 2>&1 || { cat pan.log; exit 2; }
  # A search that did not see all states proves nothing.
  ! grep -q 'max search depth too small\|out of memory' pan.log || { cat pan.log; exit 2; }
  grep 'errors:' pan.log | sed "s/^/BROKEN=$1: /"
  grep 'pan:1:' pan.log || :
  grep -q 'errors: 0' pan.log
}

check 0 || { cat pan.log; echo "FAILED: the protocol is broken"; exit 1; }
strangers=2
for fault in $(seq "$faults"); do
  if check "$fault"; then
    echo "FAILED: fault $fault was not found"
    exit 1
  fi
done
echo "the protocol holds, and each of $faults faults in it is found"
