#!/bin/sh
# Runs PROGRAM ARGS with vm.overcommit_memory=2 (the kernel commits no more than it has), then restores
# the setting. Not root, or a read-only /proc: skipped (77) with the reason.
set -eu
setting=/proc/sys/vm/overcommit_memory
ratio=/proc/sys/vm/overcommit_ratio
[ -w "$setting" ] || { echo "skipped: cannot write $setting (needs root)"; exit 77; }
was=$(cat "$setting")
ratio_was=$(cat "$ratio")
restore() { echo "$was" >"$setting"; echo "$ratio_was" >"$ratio"; }
trap restore EXIT
trap 'exit 1' HUP INT TERM
# The rest of the machine keeps working: the limit is 90 % of RAM.
if ! { echo 90 >"$ratio" && echo 2 >"$setting"; } 2>/dev/null; then
  echo "skipped: the kernel refuses vm.overcommit_memory=2 here"
  exit 77
fi
[ "$(cat "$setting")" = 2 ] || { echo "skipped: the setting does not hold"; exit 77; }
# LD_PRELOAD is for the program alone, not for this shell's own commands.
LD_PRELOAD=${TEST_PRELOAD-} "$@"
