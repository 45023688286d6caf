# shellcheck shell=sh disable=SC2154
# run.sh: `hak test`; sourced by hak, whose functions and names it uses. A preset is built and its tests are run
# by ctest; the numbers of the last line come from ctest's result files.

presets_quick='release check'
presets_all='release check core clang fuzz asan tsan aarch64 musl'

# Sets $only and $without, the labels of the tests that a preset runs and leaves out. What a sanitizer or
# another compiler cannot tell us anything new about runs in the release build only; what an emulator cannot
# run has the label native. The labels all and long mark what only --all and --long run.
select_labels() {
  only=. without='apps|bench|lint'
  case $1 in
    release) without= ;;
    clang) only='unit|misuse' ;;
    fuzz) only=fuzz ;;
    aarch64) only=unit without="$without|native" ;;
    musl) only='unit|misuse|stress' ;;
  esac
  [ -n "$all" ] || without=${without:+$without|}all
  [ -n "$long" ] || without=${without:+$without|}long
  without=${without:+"^($without)\$"}
}

# Why preset $1 cannot run on this machine; nothing when it can.
unfit() {
  case $1:$(uname -m) in
    aarch64:x86_64 | musl:x86_64 | musl:aarch64) ;;
    aarch64:* | musl:*) echo "cross builds are tested on x86-64 only" ;;
  esac
}

# The programs that bench/runs.py and other long tests run.
runs_needs() {
  set -- /usr/sbin/php-fpm*
  echo "$1=php-fpm" pgbench=postgresql mariadb-slap=mariadb-server nginx=nginx-light /usr/sbin/apache2=apache2 ab=apache2-utils curl=curl \
    memcached=memcached memcslap=libmemcached-tools javac=default-jdk-headless erl=erlang-base ruby=ruby \
    prometheus=prometheus ffmpeg=ffmpeg soffice=libreoffice-writer-nogui \
    /usr/share/nodejs/typescript=node-typescript
}

# What the tests of preset $1 need, as words for need.
test_needs() {
  build_needs "$1"
  echo gcc=gcc g++=g++ /usr/include/stdio.h=libc6-dev readelf=binutils python3=python3 /usr/include/cmocka.h=libcmocka-dev \
    /usr/include/seccomp.h=libseccomp-dev
  case $1 in
    release) echo redis-server=redis-server redis-benchmark=redis-tools sqlite3=sqlite3 git=git perl=perl node=nodejs \
      spin=spin valgrind=valgrind go=golang-go shellcheck=shellcheck pkg-config=pkg-config chromium=chromium \
      /usr/share/fonts/truetype/dejavu=fonts-dejavu-core /usr/include/curses.h=libncurses-dev tmux=tmux strace=strace \
      bwrap=bubblewrap unshare=util-linux abidw=abigail-tools \
      mandoc=mandoc zsh=zsh ${long:+lintian=lintian mmdebstrap=mmdebstrap dh=debhelper ip=iproute2 pdftotext=poppler-utils} ${long:+$(runs_needs)} ;;
    aarch64 | musl) echo xz=xz-utils ;;
  esac
}

# Parts of Python that are packages of their own: its tests of itself, and what makes environments.
need_python_parts() {
  set --
  python3 -c 'import test.test_json' 2>/dev/null ||
    set -- "no-tests=libpython$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-testsuite"
  python3 -c 'import ensurepip' 2>/dev/null || set -- "$@" no-ensurepip=python3-venv
  need "$@"
}

# The header of the probes: its folder is the machine's, so the compiler is asked.
need_probe_header() {
  c=${CC:-gcc}
  echo '#include <sys/sdt.h>' | "${c%% *}" -E -x c - >/dev/null 2>&1 || need no-sdt=systemtap-sdt-dev
}

# libFuzzer, a package of its own beside clang's.
need_fuzzer() {
  need "$(clang --print-resource-dir)/lib/linux/libclang_rt.fuzzer-$(uname -m).a=libclang-rt-$(clang -dumpversion | sed 's/\..*//')-dev"
}

# The formatter and the linter, at their pinned versions.
install_checkers() {
  python_environment "$home/build/lint" "$home/tests/lint/requirements.txt" "clang-format and clang-tidy" ||
    say "could not install them; the tests that need them will say so"
}

# The test library's source, for the builds that the distribution has no package for. The package
# lists used for it are separate, so nothing changes in the system's.
fetch_cmocka() {
  sources=$home/build/deps
  [ ! -f "$sources/cmocka/src/cmocka.c" ] || return 0
  has apt-get || die "missing: the source of cmocka in $sources/cmocka"
  say "getting the source of cmocka"
  rm -rf "$sources"
  mkdir -p "$sources/lists/partial" "$sources/parts" "$sources/cmocka"
  for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ ! -f "$list" ] || sed -n 's/^deb /deb-src /p' "$list"
  done >"$sources/sources.list"
  for list in /etc/apt/sources.list.d/*.sources; do
    [ ! -f "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" >"$sources/parts/${list##*/}"
  done
  set -- -q -o "Dir::Etc::sourcelist=$sources/sources.list" -o "Dir::Etc::sourceparts=$sources/parts" \
    -o "Dir::State::lists=$sources/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=
  if ! (cd "$sources" && apt-get "$@" update && apt-get "$@" source --download-only cmocka &&
    tar -xf cmocka_*.orig.tar.?z -C cmocka --strip-components=1) </dev/null >"$sources/log" 2>&1; then
    cat "$sources/log" >&2
    die "could not get the source of cmocka"
  fi
}

# A pprof, where Go has none: its later versions build one, in 40 CPU seconds. That of Debian's Go is fetched in nine,
# and nothing is installed. Without it the test has one built.
fetch_pprof() {
  folder=$home/build/pprof
  if [ -x "$folder/pprof" ] || ! has go || ! has apt-get || [ -x "$(go env GOTOOLDIR)/pprof" ]; then return 0; fi
  rm -rf "$folder"
  mkdir -p "$folder"
  (
    cd "$folder"
    package=$(apt-cache depends golang-go | sed -n 's/.*Depends: \(golang-[0-9.]*-go\)$/\1/p')
    apt-get -q download "$package" && dpkg-deb --fsys-tarfile golang-*.deb >files.tar &&
      tar -xf files.tar --wildcards --transform 's|.*/||' '*/pkg/tool/*/pprof'
    rm -f golang-*.deb files.tar
  ) >"$folder/log" 2>&1 || :
}

# pyenv's python3 is a script that looks for the interpreter each time, for 0.1 s. Its folder comes first in the path.
find_interpreter() {
  case $(head -c 2 "$(command -v python3)") in
    '#!') PATH=$(python3 -ISc 'import os, sys; print(os.path.dirname(sys.executable))'):$PATH ;;
  esac
}

# Reads ctest's result file $2 of preset $1: prints "passed failed skipped", and names each skipped test
# and its reason, the line that begins with `skipped: `, else the last one, on stderr. A test that could not be started
# has failed.
read_results() {
  awk -v preset="$1" '
    function plain(text) {
      gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&quot;/, "\"", text); gsub(/&amp;/, "\\&", text)
      return text
    }
    /<testcase / { name = $0; sub(/.*<testcase name="/, "", name); sub(/".*/, "", name); state = "failed"; reason = told = "" }
    /<testcase .*status="run"/ { state = "passed" }
    /<skipped message="(SKIP_|Disabled)/ { state = "skipped" }
    /<system-out>/ { sub(/.*<system-out>/, ""); inside = 1 }
    # A test of several, of which pytest skipped some: they count, too.
    inside && /^SKIPPED \[[0-9]+\] / {
      line = $0
      sub(/^SKIPPED \[[0-9]+\] [^ ]* /, "", line)
      printf "hak: skipped: part of %s (%s): %s\n", plain(name), preset, plain(line) >"/dev/stderr"
      count["skipped"]++
    }
    # The same for cmocka, which names them twice. A reason stands in the line before, if the test gives one.
    inside && /^\[  SKIPPED \] [a-z0-9_]+$/ && !((name, $4) in seen) {
      seen[name, $4] = 1
      why = reason ~ /^skipped: / ? ": " plain(substr(reason, 10)) : ""
      printf "hak: skipped: part of %s (%s): %s%s\n", plain(name), preset, $4, why >"/dev/stderr"
      count["skipped"]++
    }
    inside { line = $0; if (sub(/<\/system-out>.*/, "", line)) inside = 0; if (line != "") reason = line; if (line ~ /^skipped: /) told = line }
    /<\/testcase>/ {
      count[state]++
      if (state == "skipped") {
        if (told != "") reason = told # children may print after it
        sub(/^skipped: /, "", reason)
        printf "hak: skipped: %s (%s): %s\n", plain(name), preset, plain(reason) >"/dev/stderr"
      } else if (state == "failed") names = names " " plain(name) ":" preset
    }
    END { print count["passed"] + 0, count["failed"] + 0, count["skipped"] + 0 names }' "$2"
}

# What the tests need from the network. It comes while release is built.
prepare() {
  case $1 in
    *" release "*)
      lab_environment lab/requirements.lock tests/lab/requirements.lock
      install_checkers
      fetch_pprof
      ;;
  esac
  case $1 in *" aarch64 "* | *" musl "*) fetch_cmocka ;; esac
}

prepared() {
  [ -z "$preparing" ] || wait "$preparing" || exit 1
  preparing=
}

# Adds to $passed, $skipped and $unsuccessful. $2: nothing, or the preset that is tested next.
test_preset() {
  preset=$1 next=$2
  reason=$(unfit "$preset")
  if [ -n "$reason" ]; then
    say "skipped: preset $preset: $reason"
    skipped=$((skipped + 1))
    return
  fi
  begun=$(date +%s)
  [ -z "$ahead" ] || wait "$ahead" || : # it was built beside the last one's tests; a failure is told here
  ahead=
  [ "$preset" = release ] || prepared
  if ! (build "$preset" ON all); then
    unsuccessful=$((unsuccessful + 1))
    failures="$failures build:$preset"
    return
  fi
  prepared
  dir=$home/build/$preset
  results=$dir/test-results.xml
  rm -f "$results"
  select_labels "$preset"
  # Twice as many tests as processors: half of them sleep. What measures is RUN_SERIAL. ctest keeps 1 KiB of a test that
  # passed, unless told otherwise; what it skipped may be told later.
  set -- --test-dir "$dir" --output-on-failure --test-output-size-passed 1048576 --output-junit "$results" --timeout 600 -j $(($(nproc) * 2)) -L "$only"
  [ -z "$without" ] || set -- "$@" -LE "$without"
  [ -z "$pattern" ] || set -- "$@" -R "$pattern"
  set -- ctest "$@"
  # The emulator keeps a record of every page a program ever mapped: it may not take the machine's memory.
  [ "$preset" != aarch64 ] || set -- prlimit "--data=$((8 << 30))" "$@"
  say "testing $preset"
  # What the tests leave of the processors builds the next preset; not beside release, whose tests measure, and wait for
  # the lock of builds. Those of check that change the machine's settings run last, long after the build, unless a pattern
  # leaves out the others. A failure is told at its turn.
  case $preset:$next:$pattern in
    release:* | *::* | check:*:?*) ;;
    *) [ -n "$(unfit "$next")" ] || (build "$next" ON all) >/dev/null 2>&1 & ahead=$! ;;
  esac
  "$@" </dev/null || :
  if [ -f "$results" ]; then
    read -r good bad idle names <<T
$(read_results "$preset" "$results")
T
  else
    good=0 bad=0 idle=0 names=
  fi
  if [ $((good + bad + idle)) = 0 ]; then
    # A preset without a test is a mistake, unless only some were asked for.
    [ -n "$pattern" ] || { unsuccessful=$((unsuccessful + 1)); failures="$failures no-test:$preset"; }
    return 0
  fi
  passed=$((passed + good))
  unsuccessful=$((unsuccessful + bad))
  skipped=$((skipped + idle))
  failures="$failures${names:+ $names}"
  say "$preset: $good passed, $bad failed, $idle skipped in $(($(date +%s) - begun)) s"
}

read_presets() {
  presets=$(echo "$1" | tr ',' ' ')
  case $presets in *[!\ ]*) ;; *) wrong "--preset names none" ;; esac
}

run_tests() {
  case $home in
    *[[:space:]:\;\$]*) die "the tests preload libraries, and LD_PRELOAD cannot hold the path $home" ;;
  esac
  long='' all='' pattern='' presets=
  while [ $# -gt 0 ]; do
    case $1 in
      --all) all=1 ;;
      --long) all=1 long=1 ;;
      --preset) [ $# -gt 1 ] || wrong "--preset needs a list"; read_presets "$2"; shift ;;
      --preset=*) read_presets "${1#*=}" ;;
      -*) wrong "unknown option $1" ;;
      *) [ -z "$pattern" ] || wrong "takes one NAME-PATTERN"; pattern=$1 ;;
    esac
    shift
  done
  [ -n "$presets" ] || presets=${all:+$presets_all}
  [ -n "$presets" ] || presets=$presets_quick
  for preset in $presets; do
    case " $presets_all debug " in *" $preset "*) ;; *) wrong "unknown preset '$preset'" ;; esac
  done
  needs=
  for preset in $presets; do
    [ -n "$(unfit "$preset")" ] || needs="$needs $(test_needs "$preset")"
  done
  # shellcheck disable=SC2086  # words
  need $needs
  find_interpreter
  need_probe_header
  case " $presets " in *" fuzz "*) need_fuzzer ;; esac
  case " $presets " in *" release "*) need_python_parts ;; esac
  prepare " $presets " &
  preparing=$!
  ahead=
  passed=0 skipped=0 unsuccessful=0 failures=
  # shellcheck disable=SC2086  # words
  set -- $presets
  while [ $# -gt 0 ]; do
    test_preset "$1" "${2-}"
    shift
  done
  if [ $((passed + unsuccessful + skipped)) = 0 ]; then
    if [ -n "$all" ]; then
      say "no test matches '$pattern'"
    else
      say "no quick test matches '$pattern'; --all looks at all"
    fi
    exit 2
  fi
  [ -z "$failures" ] || say "failed:$failures"
  summary="$passed passed, $unsuccessful failed"
  [ $skipped = 0 ] || summary="$summary, $skipped skipped"
  echo "$summary"
  [ $unsuccessful = 0 ] || exit 1
}
