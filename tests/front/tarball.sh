#!/bin/bash
# tarball.sh SOURCE: the tarball of the sources. Two have the same bytes, the checksums and the bill of materials are those
# of the tarball, and hak works in what it holds.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
export SOURCE_DATE_EPOCH=1700000000
mkdir "$work/checkout"
(cd "$1" && git ls-files -z | tar --null -T - -cf -) | tar -xf - -C "$work/checkout"
hak=$work/checkout/hak packages=$work/checkout/build/packages
mapfile -t made < <("$hak" package source)
[ ${#made[@]} = 2 ] || fail "made: ${made[*]}"
cp "${made[0]}" "$work/first.tar.gz"
(umask 027 && touch "$work/checkout/README.md" && "$hak" package source >/dev/null)
cmp "${made[0]}" "$work/first.tar.gz" || fail "two tarballs differ"
(cd "$packages" && sha256sum -c --quiet SHA256SUMS) || fail "checksums"
python3 - "$packages" "${made[@]}" <<'T' || fail "the bill of materials"
import hashlib, json, pathlib, sys
bill = json.loads(pathlib.Path(sys.argv[3]).read_text())
package, = bill["packages"]
assert bill["spdxVersion"] == "SPDX-2.3" and bill["documentDescribes"] == [package["SPDXID"]]
assert package["checksums"][0]["checksumValue"] == hashlib.sha256(pathlib.Path(sys.argv[2]).read_bytes()).hexdigest()
assert bill["creationInfo"]["created"] == "2023-11-14T22:13:20Z" and "hakmem authors" in package["copyrightText"]
T
echo x >>"${made[0]}" # the control
(cd "$packages" && sha256sum -c --status SHA256SUMS) && fail "a changed tarball passes"
tar -xzf "$work/first.tar.gz" -C "$work"
unpacked=$(echo "$work"/hakmem-*)
"$unpacked/hak" version >/dev/null || fail "hak in the tarball"
diff -r "$work/checkout" "$unpacked" --exclude build || fail "the tarball is not the checkout"
echo "the tarball is what it says"
