#!/bin/bash
# turns.sh OVERCOMMIT_SH: overcommit.sh on made-up settings, as any user. Of two runs one is inside at a time, and the
# settings are as before, whatever ends a run. Positive controls: without flock the two meet inside; without setsid,
# which starts the keeper, a killed run leaves its settings.
set -eu
script=$1
home=$(mktemp -d)
trap 'rm -rf "$home" || :' EXIT # a keeper may be at its last write
patience=2000 # tenths of a second
fail() { echo "CHECK failed: $*"; exit 1; }

# fresh TOOL: other settings, for a case of its own; the TOOL, if any, does nothing in it.
fresh() {
  export TEST_VM_SETTINGS && TEST_VM_SETTINGS=$(mktemp -d -p "$home")
  mkdir "$TEST_VM_SETTINGS/inside" "$TEST_VM_SETTINGS/tools"
  echo 0 >"$TEST_VM_SETTINGS/overcommit_memory"
  echo 50 >"$TEST_VM_SETTINGS/overcommit_ratio"
  [ $# = 0 ] || { printf '#!/bin/sh\n' >"$TEST_VM_SETTINGS/tools/$1" && chmod +x "$TEST_VM_SETTINGS/tools/$1"; }
}
run() { PATH=$TEST_VM_SETTINGS/tools:$PATH exec "$script" "$@"; }
are() { [ "$(cat "$TEST_VM_SETTINGS/overcommit_memory" "$TEST_VM_SETTINGS/overcommit_ratio" | tr '\n' ' ')" = "$1 " ]; }
# within TENTHS COMMAND...: waits until it succeeds.
within() {
  for ((i = 0; i < $1; i++)); do
    ! "${@:2}" || return 0
    sleep 0.1
  done
  return 1
}
two_met() {
  set -- "$TEST_VM_SETTINGS"/inside/*
  [ $# -lt 2 ] || : >"$TEST_VM_SETTINGS/met"
  [ -e "$TEST_VM_SETTINGS/met" ]
}
# What runs inside: it waits for another one.
look() {
  are "2 90" || : >"$TEST_VM_SETTINGS/wrong"
  : >"$TEST_VM_SETTINGS/inside/$$"
  within "$1" two_met || :
  rm "$TEST_VM_SETTINGS/inside/$$"
}
export -f are within two_met look
one_is_in() { compgen -G "$TEST_VM_SETTINGS/inside/*" >/dev/null; }
meet() {
  run bash -c "look $1" &
  within $patience one_is_in || fail "nothing runs inside"
  run bash -c "look $1" &
  wait
  [ -e "$TEST_VM_SETTINGS/met" ]
}
# killed SIGNAL: a run of which all processes get it, as from a terminal or from ctest.
killed() {
  set -m
  run bash -c ': >"$TEST_VM_SETTINGS/inside/me"; sleep 1000' &
  set +m
  run=$!
  within $patience one_is_in || fail "nothing runs inside"
  are "2 90" || fail "other settings inside"
  # shellcheck disable=SC2046  # words
  kill -s "$1" -- "-$run" $(cat "/proc/$run/task/$run/children" 2>/dev/null) 2>/dev/null || : # some have ended
  wait "$run" 2>/dev/null || :
}

fresh
! meet 10 || fail "two runs are inside at a time"
[ ! -e "$TEST_VM_SETTINGS/wrong" ] || fail "other settings inside"
within $patience are "0 50" || fail "other settings afterwards" # the keeper may be writing
for signal in TERM KILL; do
  fresh
  killed $signal
  within $patience are "0 50" || fail "other settings after SIG$signal"
  run true & # the lock is free again
  wait $! || fail "no other run after SIG$signal"
done
fresh flock
meet $patience || fail "the control: without the lock, two do not meet"
fresh setsid
killed KILL
! are "0 50" || fail "the control: without the keeper, the settings are back"
