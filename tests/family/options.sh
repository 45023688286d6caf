#!/bin/sh
# options.sh TOOL LIBRARY PROGRAM: what the environment gives, as hakmem-options shows it, and what PROGRAM on the
# library says about it on stderr: one line for each name or value that is not understood.
set -u
tool=$1 library=$2 program=$3
bad=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in $(env | sed -n 's/^\(HAKMEM_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

# gives 'NAME VALUE' ASSIGNMENT...: the option has that value, and nothing is said about it.
gives() {
  wanted=$1
  shift
  env "$@" "$tool" 2>"$work/err" | sed -n 's/^\(HAKMEM_[A-Z_]*\)  *\([^ ]*\).*/\1 \2/p' >"$work/out"
  grep -qx "HAKMEM_$wanted" "$work/out" || {
    echo "FAILED: $*: not $wanted but $(grep "HAKMEM_${wanted% *} " "$work/out")"
    bad=1
  }
  [ ! -s "$work/err" ] || { echo "FAILED: $*: said '$(cat "$work/err")'"; bad=1; }
}

# says SENTENCES ASSIGNMENT...: exactly these lines, from the tool and from the program on the library.
says() {
  wanted=$1
  shift
  env "$@" "$tool" 2>&1 >/dev/null | sort >"$work/err"
  env "$@" LD_PRELOAD="$library" "$program" 2>&1 >/dev/null | sort >"$work/preloaded"
  printf '%s\n' "$wanted" | sort >"$work/wanted"
  for heard in err preloaded; do
    cmp -s "$work/wanted" "$work/$heard" || { echo "FAILED: $*: said '$(cat "$work/$heard")', not '$wanted'"; bad=1; }
  done
}

all='(hak options lists all)'

gives 'PROFILE balanced' A=B
gives 'PROFILE lean' HAKMEM_PROFILE=LEAN
gives 'TARGET_MB 10' HAKMEM_SS_MEM_LEAN=1
# Own names beat the others in either order. All names and words: unit.options.
gives 'PROFILE speed' HAKMEM_PROFILE=speed HAKMEM_SS_MEM_LEAN=1
gives 'PROFILE speed' HAKMEM_SS_MEM_LEAN=1 HAKMEM_PROFILE=speed

# Each preset whose value differs from the default one's is named.
"$tool" | grep -q '; default 1024 (speed 2048, lean 32, secure 512)$' || {
  echo "FAILED: the presets' values of HAKMEM_BIN_KB_MAX: $("$tool" | grep -A2 BIN_KB_MAX | tail -1)"
  bad=1
}

says "hakmem: HAKMEM_NONSENSE is no option of hakmem, ignored $all" HAKMEM_NONSENSE=1
says "hakmem: HAKMEM_KEEP_MB=many: bad value, allowed is 0 to 16777216 MiB; default kept $all" HAKMEM_KEEP_MB=many
says "hakmem: HAKMEM_SS_MEM_LEAN=7: bad value, allowed is off, on; default kept $all" HAKMEM_SS_MEM_LEAN=7
says "hakmem: HAKMEM_PROFILE=fast: bad value, allowed is speed, balanced, lean, secure; default kept $all" HAKMEM_PROFILE=fast
says "hakmem: HAKMEM_A is no option of hakmem, ignored $all
hakmem: HAKMEM_HUGE=some: bad value, allowed is off, large, all; default kept $all" HAKMEM_A= HAKMEM_HUGE=some HAKMEM_STATS=off

# The positive control: the judges can refuse.
failed=$bad
bad=0
gives 'PROFILE speed' HAKMEM_PROFILE=lean >/dev/null
[ $bad = 1 ] || { echo "FAILED: a wrong value was not noticed"; failed=1; }
bad=0
says "hakmem: other words" HAKMEM_PROFILE=fast >/dev/null
[ $bad = 1 ] || { echo "FAILED: other words were not noticed"; failed=1; }
exit $failed
