#!/bin/bash
# paper.sh SOURCE: `hak docs --pdf` makes the technical report: its pages, headings, figures and references; twice the same.
# A figure that is missing is noticed.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
for tool in pdfinfo pdftotext; do command -v $tool >/dev/null || { echo "skipped: no $tool (Debian package poppler-utils)"; exit 77; }; done
mkdir "$work/tree"
(cd "$1" && git ls-files -z | tar --null -T - -cf -) | tar -xf - -C "$work/tree"
hak=$work/tree/hak
export SOURCE_DATE_EPOCH=1700000000
paper=$("$hak" docs --pdf 2>"$work/log") || fail "hak docs --pdf: $(cat "$work/log")"
cp "$paper" "$work/first.pdf"
"$hak" docs --pdf >"$work/path" 2>&1
cmp "$work/first.pdf" "$paper" || fail "two reports of one commit differ"

pages=$(pdfinfo "$paper" | sed -n 's/^Pages: *//p')
if [ "$pages" -lt 10 ] || [ "$pages" -gt 14 ]; then fail "$pages pages"; fi
pdftotext "$paper" - | tr -s ' \n' ' ' >"$work/text"
grep -Eo '^#+ .*' "$work/tree/docs/design.md" | sed 's/^#* //; s/`//g' >"$work/wanted"
# What only stands in plots, a caption, a block of stored figures, the last reference.
printf '%s\n' 'rate, hakmem / the fastest peer' 'peak RSS, hakmem / the leanest peer' 'seconds idle' percentile 'Figure 3.' \
  larson-8-1024 'Larger peak RSS than the leanest peer' 'long-running server applications' >>"$work/wanted"
while read -r words; do grep -qF "$words" "$work/text" || fail "the report does not say '$words'"; done <"$work/wanted"
if grep -q 'figures:\|\](' "$work/text"; then fail "marks in the text"; fi

rm "$work/tree/docs/figures/idle.svg"
if "$hak" docs --pdf >"$work/log" 2>&1; then fail "a figure that is not there is not noticed"; fi
echo "the report has $pages pages"
