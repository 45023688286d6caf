#!/bin/bash
# prewarm.sh LIBRARY: HAKMEM_PREWARM=on fills bins at the start, except under a low limit, where slabs of classes that
# the program may never use cost too much of it.
set -eu
bins() { # KiB of address space
  (ulimit -v "$1" && HAKMEM_PREWARM=on HAKMEM_STATS=json LD_PRELOAD=$library /bin/true) 2>&1 |
    grep -o '"bin_blocks":[0-9]*' | cut -d: -f2
}
library=$1
[ "$(bins unlimited)" -gt 0 ] || { echo "CHECK failed: no bin is filled without a limit"; exit 1; }
[ "$(bins 98304)" -eq 0 ] || { echo "CHECK failed: bins are filled under a limit of 96 MiB"; exit 1; }
