#!/bin/bash
# site.sh SOURCE: the site of the documents is built, from a copy; a browser shows it. A dead link, a dead heading and a
# misspelled word are noticed.
set -euo pipefail
work=$(mktemp -d)
compiled=$1/build/lab-venv/compiled$work # what the environment keeps of the copy
trap 'rm -rf "$work" "$compiled"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
[ -d "$1/build/lab-venv" ] || { echo "skipped: the lab's environment is not there"; exit 77; }
mkdir -p "$work/tree/build"
ln -s "$(realpath "$1/build/lab-venv")" "$work/tree/build"
hak=$work/tree/hak heaps=$work/tree/docs/heaps.md
# The scorecard is that of a few rows, as the whole one takes half of the time. lab.figures makes that of all rows that
# are stored, and a browser shows one in lab.report.
unpacked() {
  (cd "$1" && git ls-files -z | tar --null -T - -cf -) | tar -xf - -C "$work/tree"
  sed -i '21,$d' "$work/tree/lab/results/"*.jsonl
}
unpacked "$1"

# The controls, without most of the documents and rows. A misspelled word ends a build before its links are looked at.
rows=("$work/tree/lab/results/"*.jsonl)
rm "${rows[@]:1}"
find "$work/tree" -name '*.md' ! -path "$work/tree/README.md" ! -path '*/docs/README.md' ! -path "$heaps" \
  ! -name live.md -delete
refused() { # refused SENTENCE...
  cp "$heaps" "$work/kept"
  printf '%s\n' "$@" >>"$heaps"
  if "$hak" docs >"$work/log" 2>&1; then fail "'$*' is not noticed"; fi
  cp "$work/kept" "$heaps"
}
told() { grep -q "$1" "$work/log" || fail "$1 is not noticed: $(cat "$work/log")"; }
refused "This word is mispelled."
told mispelled
refused "See [that](nowhere.md), and [that](live.md#no-such-heading)."
told nowhere.md
told no-such-heading
unpacked "$1"

page=$("$hak" docs 2>"$work/log") || fail "hak docs: $(cat "$work/log")"
folder=${page%/*}
for file in index.html docs/index.html docs/decisions/index.html docs/heaps.html scorecard/index.html search/search_index.json; do
  [ -s "$folder/$file" ] || fail "there is no $file"
done

command -v chromium >/dev/null || { echo "skipped: there is no chromium"; exit 77; }
python3 -u -m http.server -b 127.0.0.1 -d "$folder" 0 >"$work/server" 2>/dev/null & # it tells the port that it got
server=$!
trap 'kill $server; rm -rf "$work" "$compiled"' EXIT
for _ in $(seq 2000); do [ ! -s "$work/server" ] || break; sleep 0.1; done
site=$(grep -o 'http://127.0.0.1:[0-9]*/' "$work/server") || fail "no server"
HOME=$work timeout 200 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$work/c" --window-size=1200,900 \
  --screenshot="$work/shot.png" "${site}docs/heaps.html" 2>"$work/log" || fail "chromium: $(tail -c 300 "$work/log")"
[ "$(stat -c %s "$work/shot.png")" -gt 20000 ] || fail "an empty screen"
[ -z "${SITE_SHOT-}" ] || cp "$work/shot.png" "$SITE_SHOT"
HOME=$work timeout 200 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$work/c" --dump-dom \
  "${site}docs/heaps.html" 2>/dev/null >"$work/dom" || fail "chromium"
for part in 'data-md-component="search"' '<h1 id="heaps">'; do grep -q "$part" "$work/dom" || fail "the page has no $part"; done
if grep -Eo '(src|href)="https?://[^"]*\.(js|css|woff2?)' "$work/dom"; then fail "the page fetches from elsewhere"; fi
echo "the site is built and shown"
