#!/bin/bash
# wheel.sh SOURCE: the wheel. Two builds give the same bytes; pip installs it into every Python from 3.9 on that is here,
# and programs run on it, see their figures, write profiles, and are told when they do not run on it.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER
export SOURCE_DATE_EPOCH=1700000000
wheel=$("$source/hak" package wheel) || fail "hak package wheel"
cp "$wheel" "$work"
(umask 027 && TZ=Asia/Tokyo "$source/hak" package wheel >/dev/null) || fail "a second time"
cmp "$wheel" "$work/${wheel##*/}" || fail "two builds differ"
case $wheel in *-py3-none-manylinux_*) ;; *) fail "its tag is none of any Linux: $wheel" ;; esac

cat >"$work/app.py" <<'T'
import sys
import hakmem

if not hakmem.active():
    try:
        hakmem.stats()
    except hakmem.NotLoaded as reason:
        sys.exit(f"not loaded: {reason}")
hakmem.profile_start(1)
block = bytearray(64 << 20)
held = hakmem.stats()["live_bytes"]
assert held >= len(block), held
hakmem.profile_dump(sys.argv[1])
hakmem.profile_stop()
assert hakmem.process_stats()["rss_bytes"] >= len(block)
assert hakmem.class_stats()[0]["block_bytes"] > 0
hakmem.set_option("purge_delay_ms", 500)
assert hakmem.option("purge_delay_ms") == "500"
for call, kind, told in (
    (lambda: hakmem.set_option("nonsense", 1), FileNotFoundError, "no option nonsense"),
    (lambda: hakmem.option("nonsense"), FileNotFoundError, "no option nonsense"),
    (lambda: hakmem.set_option("keep_mb", "many"), OSError, "keep_mb=many: bad value"),
    (lambda: hakmem.set_option("guard", 1), PermissionError, "guard=1: "),
    (lambda: hakmem.set_option("keep_mb\0", 1), ValueError, "null byte"),
    (lambda: hakmem.set_option("keep_mb", "1\0"), ValueError, "null byte"),
    (lambda: hakmem.profile_dump(sys.argv[1] + "\0x"), ValueError, "null byte"),
    (lambda: hakmem.profile_start(-1), ValueError, "-1 is no number"),
    (lambda: hakmem.trim(1 << 64), ValueError, "is no number"),
):
    try:
        call()
        sys.exit(f"not refused: {told}")
    except kind as error:
        assert told in str(error), error
del block
hakmem.trim()
assert hakmem.stats()["live_bytes"] < held
print("ran on", hakmem.version().split()[1])
T
tried=0
for python in python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3; do
  "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || continue
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" -q --disable-pip-version-check install --no-index "$wheel" || fail "$python: pip install"
  bin=$work/venv/bin
  out=$("$bin/hakmem" run --quiet -- env PYTHONMALLOC=malloc "$bin/python" "$work/app.py" "$work/heap.pb.gz") || fail "$python: hakmem run"
  [ "$out" = 'ran on 0.1.0' ] || fail "$python: said '$out'"
  gzip -t "$work/heap.pb.gz" || fail "$python: no profile"
  "$bin/python" -m hakmem version | grep -qx 'hakmem 0.1.0' || fail "$python -m hakmem"
  "$bin/hakmem" doctor -- "$bin/python" >"$work/out" || fail "$python: doctor: $(cat "$work/out")"
  "$bin/python" "$work/app.py" x >"$work/out" 2>&1 && fail "$python: stats without hakmem"
  grep -q '^not loaded: .*hakmem run' "$work/out" || fail "$python: without hakmem it says: $(cat "$work/out")"
  echo "$("$python" --version): ok"
  rm -rf "$work/venv" "$work/heap.pb.gz"
  tried=$((tried + 1))
done
[ $tried -gt 0 ] || fail "no Python that can be tried"
echo "the wheel is installed and used by $tried Pythons"
