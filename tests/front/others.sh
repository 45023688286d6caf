#!/bin/sh
# others.sh HAK: hak in somebody else's checkout, where what is made can be used and nothing else is made. The checkout
# is made up; its lab is a script.
set -u
hak=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
home=$root/tree
venv=$home/build/lab-venv

fail() { echo "FAILED: $*"; exit 1; }
# other VERB...: as who may not write to the checkout.
other() {
  if [ "$(id -u)" = 0 ]; then setpriv --reuid 65534 --regid 65534 --clear-groups "$home/hak" "$@"; else "$home/hak" "$@"; fi
}
# says STATUS TEXT VERB...
says() {
  status=$1 text=$2
  shift 2
  other "$@" >"$root/out" 2>&1
  got=$?
  [ $got = "$status" ] || fail "$*: status $got, not $status: $(cat "$root/out")"
  grep -q -- "$text" "$root/out" || fail "$*: said '$(cat "$root/out")', not '$text'"
  [ "$(wc -l <"$root/out")" = 1 ] || fail "$*: more than a line: $(cat "$root/out")"
}

[ "$(id -u)" != 0 ] || command -v setpriv >/dev/null || { echo "there is no setpriv"; exit 77; }
mkdir -p "$home/src/api" "$home/lab" "$venv/bin"
cp "$hak" "$home/hak"
: >"$home/CMakeLists.txt"
echo '# no library' | tee "$home/lab/requirements.lock" >"$venv/lab-requirements.lock"
printf '#!/bin/sh\necho "the lab: $*"\n' >"$venv/bin/python3"
chmod 755 "$root" "$venv/bin/python3"
[ "$(id -u)" = 0 ] || chmod a-w "$home/build"

says 0 '^the lab: -m lab report --docs$' report --docs
says 0 '^the lab: -m lab bench --help$' help bench
says 1 "$home/build is not writable" build
echo '# another' >"$home/lab/requirements.lock"
says 1 "$home/build is not writable" report
[ "$(ls "$home/build")" = lab-venv ] || fail "made in the checkout: $(ls "$home/build")"

# Its owner's Python was replaced by another version: the environment is made anew.
if python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  chmod u+w "$home/build"
  cp "$home/lab/requirements.lock" "$venv/lab-requirements.lock"
  ln -sf /nonsense/python3.11 "$venv/bin/python3"
  # Nothing is to be installed, so pip, which takes most of the time, is left out, and uv does nothing.
  mkdir "$root/bin"
  printf '#!/bin/sh\n' >"$root/bin/uv"
  cat >"$root/bin/python3" <<E
#!/bin/sh
[ "\$1 \$2" = '-m venv' ] || exec $(command -v python3) "\$@"
$(command -v python3) -m venv --without-pip "\$3" && cp "$root/bin/uv" "\$3/bin"
E
  chmod 755 "$root/bin/python3" "$root/bin/uv"
  PATH=$root/bin:$PATH "$home/hak" report >"$root/out" 2>&1
  "$venv/bin/python3" -c '' || fail "no new environment: $(cat "$root/out")"
else
  echo "not checked: a Python that was replaced; there is no ensurepip"
fi

# A compiler that does not work, and then one that does.
chmod u+w "$home/build"
printf 'cmake_minimum_required(VERSION 3.16)\nproject(made C)\nadd_custom_target(made ALL)\n' >"$home/CMakeLists.txt"
cat >"$home/CMakePresets.json" <<'E'
{"version": 3, "configurePresets": [{"name": "debug", "generator": "Ninja", "binaryDir": "${sourceDir}/build/debug"}]}
E
CC=/bin/false "$home/hak" build debug >"$root/out" 2>&1 && fail "built by a compiler that does nothing"
"$home/hak" build debug >"$root/out" 2>&1 || fail "after another compiler: $(cat "$root/out")"
echo "what others made is used"
