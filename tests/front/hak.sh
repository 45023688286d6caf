#!/bin/sh
# hak.sh HAK [LIBRARY]: the front door does what its help says. With LIBRARY, that file is preloaded;
# without, HAK is an installed script, which finds the library itself.
# shellcheck disable=SC2016  # the texts are for inner shells
set -u
hak=$1
unset HAK_LIB HAKMEM_STATS HAKMEM_STATS_PID HAKMEM_SS_OS_STATS HAKMEM_PROFILE HAKMEM_SS_MEM_LEAN LD_PRELOAD
if [ $# -gt 1 ]; then
  HAK_LIB=$2
  export HAK_LIB
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

fail() { echo "FAILED: $*"; bad=1; }

# The other tests may build at the same time.
drop_wait() { sed -i '/^hak: waiting for another build$/d' "$work/err"; }

# expect STATUS STDOUT STDERR-PATTERN COMMAND...: the pattern is grep's; an empty one wants no output.
expect() {
  status=$1 out=$2 err=$3
  shift 3
  "$@" >"$work/out" 2>"$work/err" </dev/null
  got=$?
  drop_wait
  [ $got = "$status" ] || fail "$*: status $got, not $status"
  [ "$(cat "$work/out")" = "$out" ] || fail "$*: printed '$(cat "$work/out")', not '$out'"
  if [ -z "$err" ]; then
    [ ! -s "$work/err" ] || fail "$*: on stderr: $(cat "$work/err")"
  else
    grep -q -- "$err" "$work/err" || fail "$*: on stderr '$(cat "$work/err")', not '$err'"
  fi
}

lib=$("$hak" lib) || fail "hak lib"
[ -f "$lib" ] || fail "hak lib printed '$lib'"
case $lib in /*) ;; *) fail "hak lib: '$lib' is not absolute" ;; esac

# The program's output, status and signals are its own.
expect 0 'hello' '' "$hak" run --quiet -- sh -c 'echo hello'
expect 0 'hello' '' "$hak" run --quiet sh -c 'echo hello'
expect 3 '' '' "$hak" run --quiet -- sh -c 'exit 3'
expect 0 '-15' '' python3 -c 'import subprocess, sys
print(subprocess.run([sys.argv[1], "run", "--quiet", "--", "sh", "-c", "kill -TERM $$"]).returncode)' "$hak"
expect 0 'a b|c' '' "$hak" run --quiet -- sh -c 'echo "$1|$2"' x 'a b' c
expect 0 'in' '' sh -c 'echo in | "$0" run --quiet -- cat' "$hak"
expect 0 '--quiet' '' "$hak" run --quiet -- echo --quiet
expect 0 "$lib" '' "$hak" run --quiet -- sh -c 'echo "$LD_PRELOAD"'
expect 0 'lean' '' "$hak" run --quiet --profile lean -- sh -c 'echo "$HAKMEM_PROFILE"'
expect 0 'Lean' '' "$hak" run --quiet --profile=Lean -- sh -c 'echo "$HAKMEM_PROFILE"'
expect 0 'MIXED_TINYV3_C7_SAFE' '' "$hak" run --quiet --profile MIXED_TINYV3_C7_SAFE -- sh -c 'echo "$HAKMEM_PROFILE"'
HAKMEM_SS_OS_STATS=1 expect 0 '' '' "$hak" run --quiet -- true
expect 2 '' 'is no process id' "$hak" stats x
expect 2 '' 'there is no process' "$hak" stats 999999999
expect 0 "$("$hak" help stats)" '' "$hak" stats --help
expect 0 "$("$hak" help top)" '' "$hak" top --help
# The summary goes to stderr, once: a child of the program prints none.
expect 0 '' 'hakmem' "$hak" run -- python3 -c ''
lines=$(wc -l <"$work/err")
expect 0 'x' 'hakmem' "$hak" run -- python3 -c 'import subprocess; subprocess.run(["python3", "-c", "print(\"x\")"])'
[ "$(wc -l <"$work/err")" = "$lines" ] || fail "more than one summary: $(cat "$work/err")"
expect 0 '' '[{]' "$hak" run --stats=json -- python3 -c ''
python3 -c 'import json, sys; json.load(sys.stdin)' <"$work/err" || fail "--stats=json: no JSON: $(cat "$work/err")"
# Programs that close their standard error at exit get their summary too.
expect 0 'x' 'hakmem' "$hak" run -- env printf 'x\n'

# What is preloaded already stays, behind hakmem.
other=$work/other.so
cp "$lib" "$other"
LD_PRELOAD=$other expect 0 "$lib:$other" '' "$hak" run --quiet -- sh -c 'echo "$LD_PRELOAD"'
# A path with a space.
mkdir "$work/a b"
cp "$lib" "$work/a b/libhakmem.so"
HAK_LIB="$work/a b/libhakmem.so" expect 0 '1' '' "$hak" run --quiet -- \
  python3 -c 'print(any("/a b/libhakmem" in line for line in open("/proc/self/maps")) + 0)'
HAK_LIB="$work/a b/libhakmem.so" expect 0 '1' '' sh -c \
  'eval "$("$0" env)"; python3 -c "print(any(\"/a b/libhakmem\" in line for line in open(\"/proc/self/maps\")) + 0)"' "$hak"
expect 0 "export LD_PRELOAD='$lib'" '' "$hak" env
if [ -f "${hak%/*}/tests/run.sh" ]; then # tests of a checkout with such a path would fail one by one
  mkdir -p "$work/a b/src/api" "$work/a b/tests"
  cp "$hak" "${hak%/*}/CMakeLists.txt" "$work/a b/"
  cp "${hak%/*}/tests/run.sh" "$work/a b/tests/"
  expect 1 '' 'LD_PRELOAD cannot hold the path .*/a b$' "$work/a b/hak" test unit.heap
fi

# A program that the loader preloads nothing into is named, and no other: the loader's name may stand anywhere in the file,
# where patchelf puts it, for example.
cp "$(command -v env)" "$work/moved"
printf 'int main(void) { return 0; }\n' >"$work/static.c"
"${CC:-cc}" -static "$work/static.c" -o "$work/static" || fail "no static program"
python3 - "$work/moved" <<'E'
import struct, sys
with open(sys.argv[1], "r+b") as file:
    head = file.read()
    table, = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    for at in range(table, table + size * count, size):
        if struct.unpack_from("<I", head, at)[0] == 3:
            offset, = struct.unpack_from("<Q", head, at + 8)
            length, = struct.unpack_from("<Q", head, at + 32)
            file.seek(at + 8)
            file.write(struct.pack("<Q", len(head)))
            file.seek(offset)
            file.write(bytes(length))
            file.seek(len(head))
            file.write(head[offset : offset + length])
E
expect 0 'x' 'hakmem: peak RSS' "$hak" run -- "$work/moved" printf 'x\n'
! grep -q 'statically linked' "$work/err" || fail "a program whose loader is named elsewhere: $(cat "$work/err")"
expect 0 '' "static is statically linked" "$hak" run -- "$work/static"
archive=${lib%/*}/libhakmem.a
if [ -f "$archive" ]; then
  "${CC:-cc}" -static "$work/static.c" -Wl,-u,malloc "$archive" -o "$work/with" || fail "no static program with hakmem"
  expect 0 '' 'hakmem: peak RSS' "$hak" run -- "$work/with"
  ! grep -q 'statically linked' "$work/err" || fail "a program with hakmem in it: $(cat "$work/err")"
fi

# A file with capabilities, for which PATH need not have the command that shows them.
cp "$(command -v env)" "$work/capable"
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
if PATH=$PATH:/usr/sbin setcap cap_net_raw=ep "$work/capable" 2>/dev/null && as_nobody test -r "$hak"; then
  cp "$lib" "$work/libhakmem.so"
  chmod -R a+rX "$work"
  for program in capable moved; do
    HAK_LIB=$work/libhakmem.so PATH=/usr/bin:/bin as_nobody "$hak" run -- "$work/$program" true >"$work/out" 2>"$work/err"
    said=$(grep -c "$program is given capabilities by its file: it runs without hakmem" "$work/err")
    [ "$program $said" = 'capable 1' ] || [ "$program $said" = 'moved 0' ] || fail "run $program: $(cat "$work/err")"
  done
fi

# Wrong usage: status 2 and one line; a program that cannot be started: as a shell says it.
expect 2 '' "unknown verb 'nonsense'" "$hak" nonsense
expect 2 '' "unknown option '--nonsense'" "$hak" --nonsense
expect 2 '' 'unknown option --nonsense' "$hak" run --nonsense -- true
expect 2 '' "unknown profile 'fast'" "$hak" run --profile fast -- true
expect 0 '' '' "$hak" run --quiet --profile secure -- true
expect 2 '' '--profile needs a name' "$hak" run --profile
expect 2 '' "unknown form of --stats 'xml'" "$hak" run --stats=xml -- true
expect 2 '' 'exclude each other' "$hak" run --quiet --stats -- true
expect 2 '' 'takes no argument' "$hak" lib x
expect 2 '' "no verb 'nonsense'" "$hak" help nonsense
expect 0 'mimalloc mimalloc2 jemalloc tcmalloc snmalloc rpmalloc ' '' \
  sh -c '"$0" peers list | awk "{ printf \"%s \", \$1 }"' "$hak"
expect 2 '' "unknown peer 'nonsense'" "$hak" peers path nonsense
expect 127 '' 'hakmem-nonsense: command not found' "$hak" run -- hakmem-nonsense
expect 127 '' 'command not found' "$hak" run -- ./hakmem-nonsense
expect 126 '' 'not an executable file' "$hak" run -- /etc/passwd
expect 126 '' 'not an executable file' "$hak" run -- /etc
HAK_LIB=/nonsense expect 125 '' 'there is no /nonsense' "$hak" run -- true
HAK_LIB=/etc/passwd expect 125 '' '/etc/passwd is no library' "$hak" run -- true

# The demonstration, with the commands of another system where they are here.
mkdir "$work/commands"
if busybox=$(command -v busybox); then
  for name in tr sed sort cut cat head mktemp; do ln -s "$busybox" "$work/commands/$name"; done
fi
PATH=$work/commands:$PATH "$hak" run >"$work/out" 2>"$work/err" || fail "hak run: $(cat "$work/err")"
grep -q '^median  *[0-9.]*  *[0-9.]*  *hakmem / glibc [0-9.]*$' "$work/out" || fail "hak run: $(cat "$work/out")"

for verb in run build test lib env enable disable options policy doctor bench compare soak record replay report profile peers package version help; do
  "$hak" help $verb | grep -q hak || fail "help $verb"
done
if [ $# -gt 1 ]; then
  # What runs when: the help says it, and the labels that are chosen are those.
  "$hak" help test | grep -q -e '--all' || fail "help test: $("$hak" help test)"
  expect 2 '' 'unknown option --nonsense' "$hak" test --all --nonsense
  expect 2 '' "unknown preset 'nonsense'" "$hak" test --long --preset nonsense
  expect 2 '' '--preset names none' "$hak" test --preset ''
  presets=$(sed -n 's/.*"configurePreset": "\([a-z0-9]*\)".*/\1/p' "${hak%/*}/CMakePresets.json")
  for preset in $presets; do
    "$hak" help build | grep -qw "$preset" || fail "help build has no $preset"
    sed -n '/^verb_build/,/^}/p' "$hak" | grep -qw "$preset" || fail "build does not take $preset"
  done
  chosen() { sh -c 'all=$1 long=$2; . "$3"; select_labels "$4"; echo "$only $without $presets_quick"' x "$@"; }
  run_sh=${hak%/*}/tests/run.sh
  for row in '||release|. ^(all|long)$' '1||release|. ^(long)$' '1|1|release|. ' '||check|. ^(apps|bench|lint|all|long)$' \
    '1||clang|unit|misuse ^(apps|bench|lint|long)$'; do
    all=${row%%|*} rest=${row#*|}
    long=${rest%%|*} rest=${rest#*|}
    found=$(chosen "$all" "$long" "$run_sh" "${rest%%|*}")
    [ "$found" = "${rest#*|} release check" ] || fail "labels of $row: $found"
  done
  "$hak" bench --help | grep -q 'Usage: hak bench' || fail "bench --help: $("$hak" bench --help)"
  expect 2 '' "unknown workload 'nonsense'" "$hak" bench nonsense
else
  # Without the lab it still writes profiles.
  expect 0 'hello' "the profile: $work/heap" "$hak" profile --out "$work/heap" --kb 0 -- env echo hello
  expect 1 '' "the profile: $work/more" "$hak" profile --out="$work/more" -- env false
  gzip -t "$work/heap" || fail "profile: $work/heap is no gzip file"
  (cd "$work" && "$hak" profile true 2>said && gzip -t true.*.pb.gz) || fail "profile: $(cat "$work/said")"
  [ "$(find "$work" -name 'true.*.pb.gz' | wc -l)" = 1 ] || fail "profile wrote more than one: $(ls "$work")"
  # A % in the name of the folder or of the program is no pattern.
  mkdir "$work/100%p%"
  cp "$(command -v env)" "$work/a%pb"
  (
    cd "$work/100%p%" || exit
    expect 0 '' "the profile: $work/100%p%/heap" "$hak" profile --out heap -- env true
    "$hak" profile "$work/a%pb" true 2>"$work/said" || fail "profile: $(cat "$work/said")"
    file=$(sed -n 's/^hak: the profile of this process: //p' "$work/said")
    case $file in "$work/100%p%/a%pb."[0-9]*.pb.gz) ;; *) fail "profile: $(cat "$work/said")" ;; esac
    gzip -t heap "$file" || fail "profile: no profiles in $(ls)"
    exit $bad
  ) || bad=1
  expect 2 '' 'not overwritten' "$hak" profile --out "$work/100%%p%%/heap" -- true
  expect 2 '' 'not overwritten' "$hak" profile --out "$work/heap" -- true
  expect 2 '' 'works in a checkout' "$hak" profile --flame x.svg -- true
  expect 1 '' 'profile top works in a checkout of hakmem only; go tool pprof' "$hak" profile top x.pb.gz
  expect 2 '' 'takes a number' "$hak" profile --kb x -- true
  expect 2 '' 'takes at most 1048576 KiB' "$hak" profile --kb 1048577 -- true
  expect 2 '' 'takes a CMD' "$hak" profile
  expect 2 '' 'there is no process 999999999' "$hak" profile start 999999999
  expect 2 '' 'takes a PID' "$hak" profile dump
  "$hak" profile stop --help | grep -q 'hakmem-profile stop PID' || fail "profile stop --help"
  expect 127 '' 'profile: nonsense-command: command not found' "$hak" profile nonsense-command
fi
"$hak" version | grep -Eqx 'hakmem [0-9]+\.[0-9]+\.[0-9]+' || fail "version: $("$hak" version)"
HAK_LIB=$other expect 0 "$("$hak" version)" '' "$hak" version
# The library has the same version, and names one compiler.
"$hak" run --stats=json -- env true 2>"$work/err"
grep -Eq "^[{]\"hakmem\":\"$("$hak" version) \([a-z]+ [^ ,]+\)\"" "$work/err" || fail "the library's version: $(head -c 99 "$work/err")"
"$hak" options | grep -q HAKMEM_PROFILE || fail "options: $("$hak" options)"
printf '# A page\n' >"$work/page.md"
expect 1 '# A page' 'has 0 tables' "$hak" options --markdown "$work/page.md"
[ "$("$hak" options --help)" = "$("$hak" help options)" ] || fail "options --help: $("$hak" options --help)"
expect 2 '' 'takes --markdown PAGE or nothing' "$hak" options --nonsense
# What is built first can be built with closed streams, too.
"$hak" options >&- 2>"$work/err"
[ $? = 1 ] || fail "options without stdout: another status than 1"
grep -q '^hakmem-options: stdout: ' "$work/err" || fail "options without stdout: $(cat "$work/err")"
"$hak" options 2>&- | grep -q HAKMEM_PROFILE || fail "options without stderr"
# The table shows what the environment gives, and says nothing else.
HAKMEM_STATS=json HAKMEM_KEEP_MB=77 "$hak" options >"$work/options" 2>"$work/err" || fail "options: status $?"
drop_wait
grep -q '^HAKMEM_KEEP_MB *77 MiB (set)$' "$work/options" || fail "options: $(cat "$work/options")"
[ ! -s "$work/err" ] || fail "options: on stderr: $(cat "$work/err")"

# Findings: of a program in order, of options that do nothing, of a process.
"$hak" doctor -- true >"$work/out" || fail "doctor -- true: $(cat "$work/out")"
"$hak" doctor --all -- true | grep -q '^ok  *library: .*libhakmem[^ ]* can be preloaded$' || fail "doctor: $("$hak" doctor --all -- true)"
HAKMEM_PROFIL=lean "$hak" doctor -- true | grep -q '^warning  option-names: .*HAKMEM_PROFILE may be meant$' ||
  fail "doctor: $(HAKMEM_PROFIL=lean "$hak" doctor -- true)"
"$hak" doctor $$ >"$work/out"
[ $? = 1 ] || fail "doctor of a process without hakmem: status 0"
grep -q "^problem  loaded: hakmem is not in process $$" "$work/out" || fail "doctor: $(cat "$work/out")"
"$hak" doctor --json | python3 -c 'import json, sys; json.load(sys.stdin)' || fail "doctor --json"
HAK_LIB=/nonsense/libhakmem.so "$hak" doctor -- true >"$work/out" && fail "doctor of a library that is not there: status 0"
grep -q '^problem  library: /nonsense/libhakmem.so: No such file' "$work/out" || fail "doctor: $(cat "$work/out")"
expect 2 '' "'nonsense' is no process's number" "$hak" doctor nonsense
expect 2 '' 'command not found' "$hak" doctor -- hakmem-nonsense
[ "$("$hak" doctor --help)" = "$("$hak" help doctor)" ] || fail "doctor --help: $("$hak" doctor --help)"

# What was learned: of a file that is made here, and of processes that learn nothing.
expect 2 '' 'takes show, simulate or fixed' "$hak" policy
expect 2 '' "not 'nonsense'" "$hak" policy nonsense
expect 2 '' "unknown strategy '2s'" "$hak" policy fixed 2s "$work/fixed"
expect 0 '' '' "$hak" policy fixed 1s "$work/fixed"
"$hak" policy show "$work/fixed" | grep -q 'after 1 s, whatever their size' || fail "policy show: $("$hak" policy show "$work/fixed")"
[ "$("$hak" policy --help)" = "$("$hak" help policy)" ] || fail "policy --help: $("$hak" policy --help)"
expect 2 '' 'no process 99999999999' "$hak" policy show 99999999999
echo 'a text of mine' >"$work/text"
expect 1 '' 'is not a policy file' "$hak" policy show "$work/text"
expect 1 '' 'not overwritten' "$hak" policy fixed 1s "$work/text"
[ "$(cat "$work/text")" = 'a text of mine' ] || fail "policy fixed wrote over a text"
if [ $# -gt 1 ]; then
  printf '0 + 1 1048576\n10 - 1 1048576\n' >"$work/events"
  "$hak" policy simulate "$work/events" | grep -q '^2 events' || fail "policy simulate: $("$hak" policy simulate "$work/events")"
else
  expect 1 '' 'policy simulate works in a checkout of hakmem only' "$hak" policy simulate "$work/text"
fi

[ $bad = 0 ] && echo "the front door is as its help says"
exit $bad
