#!/bin/bash
# Runs PROGRAM ARGS with vm.overcommit_memory=2 (the kernel commits no more than it has), then restores the setting,
# whatever ends this script. The setting is the whole machine's: of several runs one has it, under a lock on the setting
# itself, and the others wait. Not root, or a read-only /proc: skipped (77) with the reason.
set -eu
folder=${TEST_VM_SETTINGS-/proc/sys/vm} # turns.sh makes some up
setting=$folder/overcommit_memory
ratio=$folder/overcommit_ratio
[ -w "$setting" ] || { echo "skipped: cannot write $setting (needs root)"; exit 77; }
exec 9<"$setting"
flock -w 300 9 || { echo "skipped: another run has kept $setting for five minutes"; exit 77; }
was=$(cat "$setting")
ratio_was=$(cat "$ratio")
restore() { echo "$was" >"$setting"; echo "$ratio_was" >"$ratio"; }
# The keeper: restores them, too, when its input ends, which is when this script ends. It is no child of this script and
# has a session of its own, so that what kills the test does not reach it. It holds the lock until then.
# shellcheck disable=SC2016  # its own arguments
keeper='trap "" HUP INT TERM; read -r _; echo "$1" >"$0"; echo "$3" >"$2"'
exec 8> >(exec setsid -f sh -c "$keeper" "$setting" "$was" "$ratio" "$ratio_was" >/dev/null 2>&1)
trap restore EXIT
trap 'exit 1' HUP INT TERM
# The rest of the machine keeps working: the limit is 90 % of RAM.
if ! { echo 90 >"$ratio" && echo 2 >"$setting"; } 2>/dev/null; then
  echo "skipped: the kernel refuses vm.overcommit_memory=2 here"
  exit 77
fi
[ "$(cat "$setting")" = 2 ] || { echo "skipped: the setting does not hold"; exit 77; }
# LD_PRELOAD is for the program alone, not for this shell's own commands.
LD_PRELOAD=${TEST_PRELOAD-} "$@" 8>&- 9<&-
