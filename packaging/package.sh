# shellcheck shell=sh disable=SC2154
# package.sh: `hak package`; sourced by hak, whose functions and names it uses. What it makes is in build/packages.

# Copies the files of this checkout to the folder $1; of a tree without git, all but what was built.
copy_sources() {
  mkdir -p "$1"
  if has git && git -C "$home" rev-parse >/dev/null 2>&1; then
    (cd "$home" && git ls-files -z | tar --null -T - -cf -)
  else
    tar -C "$home" --exclude=./build --exclude=./.peers --exclude=./.git -cf - .
  fi | tar -xf - -C "$1"
}

# Debian's packages, by debhelper. What stands elsewhere is not written twice: version, licence, names of the interface.
package_deb() {
  set -- dpkg-buildpackage=dpkg-dev
  for package in $(sed -n 's/^Build-Depends: //p' "$home/packaging/debian/control" | tr ',' '\n' | sed 's/(.*//; s/-compat//'); do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok' || set -- "$@" "no-$package=$package"
  done
  need "$@"
  sources=$work/hakmem-$version debian=$work/hakmem-$version/debian
  copy_sources "$sources"
  cp -r "$home/packaging/debian" "$debian"
  {
    printf 'License: Expat\n'
    sed -e '1,/^Copyright/d' -e 's/^$/./' -e 's/^/ /' "$home/LICENSE" | sed 1d
  } >>"$debian/copyright"
  {
    echo "libhakmem.so.${version%%.*} libhakmem${version%%.*} #MINVER#"
    echo '* Build-Depends-Package: libhakmem-dev'
    sed -n "s/^ *<elf-symbol name='\([^']*\)'.*/ \1@Base $version/p" "$home/packaging/libhakmem.abi" | LC_ALL=C sort -u
  } >"$debian/libhakmem${version%%.*}.symbols"
  printf 'hakmem (%s-1) unstable; urgency=medium\n\n  * The changelog of hakmem itself says what is new.\n\n -- %s  %s\n' \
    "$version" "$(sed -n 's/^Maintainer: //p' "$debian/control")" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" >"$debian/changelog"
  if ! (cd "$sources" && dpkg-buildpackage -b -uc -us) </dev/null >"$work/log" 2>&1; then
    cat "$work/log" >&2
    die "could not build the packages"
  fi
  rm -f "$packages"/*.deb "$packages"/*.buildinfo "$packages"/*.changes
  mv "$work"/*.deb "$work"/*.buildinfo "$work"/*.changes "$packages"
  made=$(cd "$packages" && echo *_"$version"-1_*.deb)
}

package_kinds=deb

make_package() {
  kind=${1-}
  [ $# -eq 1 ] || wrong "takes one of: $package_kinds"
  case " $package_kinds " in *" $kind "*) ;; *) wrong "unknown kind '$kind' (one of: $package_kinds)" ;; esac
  version=$("$self" version)
  version=${version#hakmem }
  packages=$home/build/packages
  mkdir -p "$packages"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' HUP INT TERM
  # Two packages of one commit are the same.
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$home" log -1 --format=%ct 2>/dev/null || date +%s)}
  export SOURCE_DATE_EPOCH
  say "making $kind"
  "package_$kind"
  for file in $made; do printf '%s\n' "$packages/$file"; done
}
