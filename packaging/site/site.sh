# shellcheck shell=sh disable=SC2154
# site.sh: `hak docs`; sourced by hak, whose functions and names it uses. What it makes is in build/site.

# The words that codespell does not know, and that are right.
spelled_so=allocatedp

make_site() {
  [ $# -eq 0 ] || wrong "takes no argument"
  need python3=python3
  python3 -c 'import ensurepip' 2>/dev/null || need no-ensurepip=python3-venv
  site=$home/build/site wanted=$home/packaging/site/requirements.txt
  bin=$site/venv/bin
  if ! cmp -s "$wanted" "$site/installed.txt"; then
    rm -rf "$site"
    mkdir -p "$site"
    say "installing mkdocs from PyPI"
    if ! { python3 -m venv "$site/venv" && "$bin/python3" -m pip -q --disable-pip-version-check install -r "$wanted" >&2; }; then
      die "could not install what makes the site"
    fi
    cp "$wanted" "$site/installed.txt"
  fi
  (lab report --out "$site/scorecard") >/dev/null || die "could not make the scorecard"
  "$bin/python3" -B "$home/packaging/site/pages.py" "$home" "$site/pages" "$site/scorecard"
  find "$site/pages" -name '*.md' -exec "$bin/codespell" -q 35 -L "$spelled_so" {} + >&2 || die "words that are misspelled"
  cp "$home/packaging/site/mkdocs.yml" "$site"
  # Not -q: with it, warnings are none that count.
  if ! NO_MKDOCS_2_WARNING=1 "$bin/mkdocs" build -f "$site/mkdocs.yml" >"$site/log" 2>&1; then
    grep -v '^INFO' "$site/log" >&2
    die "could not build the site"
  fi
  printf '%s\n' "$site/html/index.html"
}
