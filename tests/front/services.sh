#!/bin/sh
# services.sh HAK LIB: hak enable and hak disable on a system below a directory; systemd reads what they wrote.
set -u
hak=$1 lib=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
units=$root/usr/lib/systemd/system
drop_in=$root/etc/systemd/system/nap.service.d/hakmem.conf
export HAK_LIB="$lib"

fail() { echo "FAILED: $*"; exit 1; }
# refused STATUS TEXT ARGUMENT...: hak ends with this status, says the text and writes nothing.
refused() {
  status=$1 text=$2
  shift 2
  "$hak" "$@" >"$root/out" 2>&1
  got=$?
  [ $got = "$status" ] || fail "$*: status $got, not $status"
  grep -q -- "$text" "$root/out" || fail "$*: said '$(cat "$root/out")', not '$text'"
  [ ! -e "$drop_in" ] || fail "$*: wrote $drop_in"
}
enabled() { "$hak" enable --root "$root" "$@" >"$root/out" 2>&1 || fail "enable $*: $(cat "$root/out")"; }
said() { grep -q -- "$1" "$root/out" || fail "not said: $1: $(cat "$root/out")"; }

mkdir -p "$units" "$root/usr/bin"
cp "$(command -v sleep)" "$root/usr/bin/nap"
printf '[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=-/usr/bin/nap 100\n' >"$units/nap.service"
printf '[Service]\nExecStart=/usr/bin/nap 1\nEnvironment=LD_PRELOAD=/x.so\nRootDirectory=/srv\n' >"$units/own@.service"

refused 2 'needs a UNIT' enable --root "$root"
refused 2 'is no name of a unit' enable --root "$root" ../nap
refused 2 'is no service' enable --root "$root" nap.timer
refused 2 "unknown profile 'fast'" enable --root "$root" --profile fast nap
refused 1 'no unit none.service' enable --root "$root" none
refused 1 'is not enabled' disable --root "$root" nap
refused 2 'unknown option' disable --profile lean nap
mkdir -p "$root/etc/systemd/system"
: >"${drop_in%/*}" # where the folder of the drop-in should be
writable=yes refused 1 'cannot write' enable --root "$root" nap
rm "${drop_in%/*}"

enabled --profile lean nap
said 'hak doctor says of .*/usr/bin/nap'
said "warning: there is no $(readlink -f "$lib") below $root"
real=$(readlink -f "$lib")
[ "$(grep -v '^#' "$drop_in")" = "[Service]
Environment=LD_PRELOAD=$real
Environment=HAKMEM_PROFILE=lean" ] || fail "the drop-in: $(cat "$drop_in")"
if command -v systemd-analyze >/dev/null; then
  systemd-analyze verify --root="$root" nap.service >"$root/out" 2>&1 || fail "systemd refuses it: $(cat "$root/out")"
  sed -i 's/^Environment=L/Environment L/' "$drop_in" # the control
  systemd-analyze verify --root="$root" nap.service >"$root/out" 2>&1
  said hakmem.conf
  # The unit that docs/deployment.md shows, as it stands there.
  sed -n '/^    \[Unit\]/,/^    WantedBy/s/^    //p' "${hak%/*}/docs/deployment.md" >"$units/shown.service"
  grep -q '^MemoryMax=' "$units/shown.service" || fail "docs/deployment.md shows no unit"
  cp "$root/usr/bin/nap" "$root/usr/bin/python3"
  printf '[Unit]\nDefaultDependencies=no\n' >"$units/multi-user.target"
  sed -i 's/^\[Unit\]/&\nDefaultDependencies=no/' "$units/shown.service"
  systemd-analyze verify --root="$root" shown.service >"$root/out" 2>&1 || fail "systemd refuses the unit shown: $(cat "$root/out")"
  sed -i 's/^MemoryMax=/&x/' "$units/shown.service" # the control
  systemd-analyze verify --root="$root" shown.service >"$root/out" 2>&1
  said 'Invalid memory limit'
else
  echo "not checked by systemd-analyze, which is not here"
fi
# What is installed below the directory is named as the system there names it.
mkdir -p "$root/opt"
cp "$lib" "$root/opt/libhakmem.so"
HAK_LIB=$root/opt/libhakmem.so enabled nap
grep -qx 'Environment=LD_PRELOAD=/opt/libhakmem.so' "$drop_in" || fail "the drop-in: $(cat "$drop_in")"
! grep -q 'there is no' "$root/out" || fail "enable: $(cat "$root/out")"
enabled nap
! grep -q PROFILE "$drop_in" || fail "enabled again without a preset: $(cat "$drop_in")"
: >"$drop_in.new" # of a hak enable that was killed
"$hak" disable --root "$root" nap.service 2>"$root/out" || fail "disable: $(cat "$root/out")"
[ ! -e "${drop_in%/*}" ] || fail "disable leaves ${drop_in%/*}"

enabled own@7
said 'sets LD_PRELOAD itself'
said 'a root of its own'
[ -f "$root/etc/systemd/system/own@7.service.d/hakmem.conf" ] || fail "an instance of a template"

# What hides the library, in each of systemd's ways to say so; the last word counts.
hiding() {
  place=$1 wanted=$2
  shift 2
  mkdir -p "$root$place"
  cp "$lib" "$root$place/libhakmem.so"
  printf '[Service]\nExecStart = /usr/bin/nap 1\n' >"$units/dim.service"
  printf '%s\n' "$@" >>"$units/dim.service"
  HAK_LIB=$root$place/libhakmem.so enabled dim
  found=$(sed -n 's/.*dim.service has \(.*\), which may hide.*/\1/p' "$root/out")
  [ "$found" = "$wanted" ] || fail "a library in $place, a unit with $*: '$found' hides it, not '$wanted'"
  said 'hak doctor says of .*/usr/bin/nap'
}
for word in on yes Y TRUE t 1 tmpfs; do hiding /home/lib ProtectHome "ProtectHome=$word"; done
for word in off no read-only ''; do hiding /home/lib '' ProtectHome=yes "ProtectHome = $word"; done
hiding /opt '' ProtectHome=yes PrivateTmp=on RootDirectory=/
hiding /tmp/lib PrivateTmp 'PrivateTmp = On'
hiding /tmp/lib PrivateTmp DynamicUser=yes
hiding /opt 'a root of its own' RootDirectory=/srv RootImage=
# Drop-ins are read by their names, in whichever folder they are.
after="$root/etc/systemd/system/dim.service.d/override.conf"
for line in Environment=LD_PRELOAD=/x.so 'Environment="A=1" "LD_PRELOAD=/x.so"' UnsetEnvironment=LD_PRELOAD Environment=; do
  printf '[Service]\n%s\n' "$line" >"$after"
  enabled dim
  said 'override.conf is read after hakmem.conf and changes LD_PRELOAD'
done
mkdir "$units/service.d"
mv "$after" "$units/service.d/early.conf"
printf '[Service]\nEnvironment=LD_PRELOAD=/x.so\n' >"$units/service.d/early.conf"
enabled dim
said 'sets LD_PRELOAD itself'
! grep -q 'is read after' "$root/out" || fail "an early drop-in: $(cat "$root/out")"

rm -r "$units/service.d"
# A line that ends with a backslash goes on in the next one; comments between do not count.
printf '[Service]\nExecStart = \\\n  /usr/bin/nap 1 \\\n  --more\nEnvironment="A=1" \\\n; of old\n  LD_PRELOAD=/x.so\n' >"$units/long.service"
enabled long
said 'sets LD_PRELOAD itself'
said 'hak doctor says of .*/usr/bin/nap'
printf '[Service]\nExecStart=/usr/bin/nap 1 \\\n# Environment=LD_PRELOAD=/x.so \\\n\n' >"$units/long.service"
enabled long
! grep -q 'sets LD_PRELOAD itself' "$root/out" || fail "a comment that ends with a backslash: $(cat "$root/out")"

# Files of variables are read after all of these. The last list counts, a missing file may be meant, a path may be a pattern.
printf '[Service]\nExecStart=/usr/bin/nap 1\nEnvironmentFile=/etc/old\nEnvironmentFile=\n' >"$units/file@.service"
printf 'EnvironmentFile=-/etc/none\nEnvironmentFile = -/etc/def*/nap %%i\n' >>"$units/file@.service"
mkdir "$root/etc/default"
echo LD_PRELOAD=/x.so >"$root/etc/old"
for line in LD_PRELOAD=/x.so 'LD_PRELOAD = "/x.so"' LD_PRELOAD=; do
  printf 'A=1\n%s\n' "$line" >"$root/etc/default/nap 7"
  enabled file@7
  said 'default/nap 7 is read after hakmem.conf and sets LD_PRELOAD: file@7.service runs without hakmem'
done
for line in '# LD_PRELOAD=/x.so' 'MY_LD_PRELOAD=/x.so' "LD_PRELOAD=$real"; do
  echo "$line" >"$root/etc/default/nap 7"
  enabled file@7
  ! grep -q 'is read after' "$root/out" || fail "a file of variables with $line: $(cat "$root/out")"
done

# A name may have a dot that begins no type of unit.
printf '[Service]\nExecStart=/usr/bin/nap 1\n' >"$units/php8.2-fpm.service"
enabled php8.2-fpm
[ -f "$root/etc/systemd/system/php8.2-fpm.service.d/hakmem.conf" ] || fail "a unit with a dot: $(cat "$root/out")"
# Starters that do not hand the unit's variables on: Debian's of PostgreSQL reads its own file, and one unit is only a name.
printf '[Service]\nExecStart=/bin/true\n' >"$units/postgresql.service"
enabled postgresql
said 'warning: postgresql.service starts no program; enable the unit of the program'
printf '[Service]\nExecStart=-/usr/bin/pg_ctlcluster --skip-systemctl-redirect %%i start\n' >"$units/postgresql@.service"
variables=/etc/postgresql/15/main-2/environment
mkdir -p "$root${variables%/*}"
for line in '' '# LD_PRELOAD=x' "LD_PRELOAD = '/x.so'"; do
  echo "$line" >"$root$variables"
  enabled postgresql@15-main-2
  said "warning: PostgreSQL gets the variables of $variables only.*: LD_PRELOAD = '$real'\$"
done
echo "LD_PRELOAD = '$real'" >"$root$variables"
enabled postgresql@15-main-2
! grep -q 'PostgreSQL gets' "$root/out" || fail "variables of PostgreSQL: $(cat "$root/out")"

mkdir -p "${drop_in%/*}"
echo '[Service]' >"$drop_in" # the administrator's
"$hak" enable --root "$root" nap >"$root/out" 2>&1 && fail "overwrote a file that is not hak's"
said 'was not written by hak'
"$hak" disable --root "$root" nap >"$root/out" 2>&1 && fail "removed a file that is not hak's"
[ "$(cat "$drop_in")" = '[Service]' ] || fail "changed a file that is not hak's"
echo "services are enabled and disabled"
