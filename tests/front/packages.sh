#!/bin/bash
# packages.sh SOURCE: all packages of this checkout. Two builds, in two folders, by two people, give the same bytes; of Debian's,
# lintian has nothing to say; a clean system installs them, runs programs on them, upgrades them under a program that
# runs, and has nothing of them left when they are removed.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "a root of its own needs root"
for tool in lintian mmdebstrap dh; do command -v $tool >/dev/null || skip "there is no $tool"; done
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER
export SOURCE_DATE_EPOCH=1700000000

mkdir "$work/one" "$work/another folder"
(cd "$source" && git ls-files -z | tar --null -T - -cf -) | tee >(tar -xf - -C "$work/one") | tar -xf - -C "$work/another folder"
# One of the two is a whole release.
"$work/one/hak" package release >"$work/all" || fail "hak package release"
(cd "$work/one/build/packages" && sha256sum -c --quiet SHA256SUMS) || fail "checksums"
for kind in deb whl crate tar.gz spdx.json; do grep -q "\.$kind\$" "$work/all" || fail "no $kind in: $(cat "$work/all")"; done
# The other is one too, by CMake's workflow. What says who built, and when, may differ.
(umask 027 && cd "$work/another folder/packaging" && TZ=Asia/Tokyo LC_ALL=C.UTF-8 LOGNAME=somebody cmake --workflow --preset release) \
  >"$work/log" 2>&1 || fail "the workflow: $(cat "$work/log")"
sums() { grep -v '\.\(buildinfo\|changes\)$' "$1/build/packages/SHA256SUMS"; }
diff <(sums "$work/one") <(sums "$work/another folder") || fail "two builds differ"
[ "$(sums "$work/one" | grep -c '\.deb$')" -ge 3 ] || fail "made only: $(cat "$work/all")"
echo x >>"$work/another folder/build/packages/hakmem-0.1.0.spdx.json" # the control: the workflow's tests notice it
(cd "$work/another folder/packaging" && ctest --preset release >/dev/null 2>&1) && fail "a changed file passes the workflow's tests"
packages=$work/one/build/packages
# Debian has no bug that asks for them.
lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$packages"/*.changes || fail "lintian"
ls "$packages"

# An older version, the same but for its number.
mkdir "$work/older"
for deb in "$packages"/*hakmem*_*.deb; do
  case $deb in *-dbgsym_*) continue ;; esac
  dpkg-deb -R "$deb" "$work/unpacked"
  sed -i 's/^Version: .*/Version: 0.0.9-1/; s/0\.1\.0-1/0.0.9-1/g' "$work/unpacked/DEBIAN/control"
  dpkg-deb -b "$work/unpacked" "$work/older" >/dev/null
  rm -rf "$work/unpacked"
done

codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
root=$work/root
cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null >"$work/sources" || :
mmdebstrap --quiet --variant=apt --aptopt='Acquire::Retries "5"' --include=libncursesw6 "$codename" "$root" - \
  <"$work/sources" 2>"$work/log" || skip "there is no clean system to be had: $(tail -n 1 "$work/log")"
mkdir "$root/packages" "$root/older"
cp "$packages"/*.deb "$root/packages"
cp "$work"/older/*.deb "$root/older"
inside() { chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive sh -ec "$1"; }
present() { inside 'find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg \) -prune -o -print' | sort; }
present >"$work/before"

inside 'apt-get install -y -q /older/*.deb' >"$work/log" 2>&1 || fail "install: $(cat "$work/log")"
inside 'hak run -- ls / 2>&1 >/dev/null' | grep -q hakmem || fail "hak run"
inside 'LD_PRELOAD=libhakmem-jemalloc.so.0 ls / 2>&1 >/dev/null' | grep . && fail "libhakmem-jemalloc.so.0 is not found"
[ "$(inside 'hak version')" = 'hakmem 0.1.0' ] || fail "hak version"
inside 'hak doctor -- ls' || fail "hak doctor: $(inside 'hak doctor -- ls')"
inside 'hak options >/dev/null; test -s /usr/share/man/man1/hak.1.gz'
# What is compiled outside against the packages runs inside.
lib=$(cd "$root" && echo usr/lib/*/libhakmem.a)
gcc "$source/tests/front/project/program.c" -o "$root/program" "-I$root/usr/include" "-L$root/${lib%/*}" -lhakmem
[ "$(inside /program)" = '1 1' ] || fail "a program that is linked with the packages"
gcc "$source/tests/front/project/program.c" -o "$root/program" "-I$root/usr/include" "$root/$lib"
[ "$(inside /program)" = '1 1' ] || fail "a program with the static library"

# A program goes on while its library is replaced.
# shellcheck disable=SC2016  # expanded inside
inside 'mkfifo /go; LD_PRELOAD=libhakmem.so.0 sh -c "read line </go; echo \$line | tr a-z A-Z" >/said & echo $! >/pid
apt-get install -y -q /packages/*.deb >/log 2>&1; echo alive >/go; wait'
[ "$(cat "$root/said")" = ALIVE ] || fail "a program that ran during the upgrade said '$(cat "$root/said")': $(cat "$root/log")"
[ "$(inside "dpkg-query -W -f '\${Version}' hakmem")" = 0.1.0-1 ] || fail "the upgrade: $(cat "$root/log")"

inside 'apt-get purge -y -q "*hakmem*"' >"$work/log" 2>&1 || fail "purge: $(cat "$work/log")"
rm -f "$root"/{program,go,pid,said,log}
present | diff "$work/before" - | grep '^>' | grep -v '/var/lib/apt' >"$work/left" && fail "left behind: $(cat "$work/left")"
echo "the packages are installed, used, upgraded and removed"
