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

# A wheel for any Python 3 of this machine's libc, or a later one, by pip's packages in an environment of their own.
package_wheel() {
  need python3=python3 cmake=cmake g++=g++
  need_python
  python=$home/build/wheel/bin/python3
  python_environment "$home/build/wheel" "$home/packaging/python/requirements.txt" || die "could not install what makes wheels"
  copy_sources "$work/sources"
  # Its own build folder in $work; the tag names the libc that auditwheel finds is needed.
  if ! {
    "$python" -m build --wheel --no-isolation -o "$work/dist" "$work/sources/packaging/python" &&
      PATH=${python%/*}:$PATH "$python" -m auditwheel repair -w "$work/repaired" "$work"/dist/*.whl
  } </dev/null >"$work/log" 2>&1; then
    cat "$work/log" >&2
    die "could not build the wheel"
  fi
  rm -f "$packages"/*.whl
  made=$(cd "$work/repaired" && echo *.whl)
  mv "$work/repaired/$made" "$packages"
}

# The crate with the C sources in it, as cargo packs and verifies it: it is built from the packed files alone.
package_crate() {
  need cargo=cargo cmake=cmake g++=g++
  copy_sources "$work/sources"
  if ! (cd "$work/sources/packaging/rust" && CARGO_TARGET_DIR=$work/target cargo package --allow-dirty) </dev/null >"$work/log" 2>&1; then
    cat "$work/log" >&2
    die "could not make the crate"
  fi
  made=hakmem-$version.crate
  mv "$work/target/package/$made" "$packages"
}

# The sources, and what they are made of (SPDX): hakmem alone, which contains no other project's code and needs libc.
package_source() {
  need gzip=gzip tar=tar
  copy_sources "$work/hakmem-$version"
  made="hakmem-$version.tar.gz hakmem-$version.spdx.json"
  # Symbolic links have no mode of their own.
  (cd "$work" && find "hakmem-$version" ! -type l -exec chmod u=rwX,go=rX {} + &&
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "hakmem-$version" | gzip -9n) \
    >"$packages/hakmem-$version.tar.gz"
  sum=$(sha256sum "$packages/hakmem-$version.tar.gz")
  cat >"$packages/hakmem-$version.spdx.json" <<T
{
  "spdxVersion": "SPDX-2.3",
  "dataLicense": "CC0-1.0",
  "SPDXID": "SPDXRef-DOCUMENT",
  "name": "hakmem-$version",
  "documentNamespace": "urn:hakmem:$version:${sum%% *}",
  "creationInfo": {"created": "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)", "creators": ["Organization: hakmem"]},
  "documentDescribes": ["SPDXRef-hakmem"],
  "packages": [
    {
      "SPDXID": "SPDXRef-hakmem",
      "name": "hakmem",
      "versionInfo": "$version",
      "packageFileName": "hakmem-$version.tar.gz",
      "checksums": [{"algorithm": "SHA256", "checksumValue": "${sum%% *}"}],
      "downloadLocation": "NOASSERTION",
      "filesAnalyzed": false,
      "licenseConcluded": "MIT",
      "licenseDeclared": "MIT",
      "copyrightText": "$(sed -n '/^Copyright/p' "$home/LICENSE")"
    }
  ]
}
T
}

package_kinds='deb wheel crate source'

make_package() {
  kind=${1-}
  [ $# -eq 1 ] || wrong "takes one of: $package_kinds release"
  case " $package_kinds release " in *" $kind "*) ;; *) wrong "unknown kind '$kind' (one of: $package_kinds release)" ;; esac
  version=$("$self" version)
  version=${version#hakmem }
  packages=$home/build/packages
  [ "$kind" != release ] || rm -rf "$packages" # nothing of an earlier one
  mkdir -p "$packages"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' HUP INT TERM
  # Two packages of one commit are the same.
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$home" log -1 --format=%ct 2>/dev/null || date +%s)}
  export SOURCE_DATE_EPOCH TZ=UTC
  umask 022
  all_made=
  [ "$kind" = release ] && kinds=$package_kinds || kinds=$kind
  for kind in $kinds; do
    say "making $kind"
    "package_$kind"
    all_made="$all_made $made"
    rm -rf "${work:?}"/*
  done
  rm -f "$packages/SHA256SUMS"
  (cd "$packages" && find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum) >"$work/sums"
  mv "$work/sums" "$packages/SHA256SUMS"
  for file in $all_made; do printf '%s\n' "$packages/$file"; done
}
