# shellcheck shell=sh disable=SC2154
# site.sh: `hak docs`; sourced by hak, whose functions and names it uses. What it makes is in build/site.

# site_environment LIST WHAT: the programs of LIST.txt, in an environment of their own.
site_environment() {
  need_python
  site=$home/build/site
  bin=$site/venv-$1/bin
  python_environment "$site/venv-$1" "$home/packaging/site/$1.txt" "$2" || die "could not install $2"
}

# The technical report. Two of one commit are the same.
make_paper() {
  set -- /usr/lib/*/libpangoft2-1.0.so.0 /usr/lib*/libpangoft2-1.0.so.0
  [ -e "$1" ] || set -- "$2"
  need "$1=libpangoft2-1.0-0" /usr/share/texmf/fonts/opentype/public/tex-gyre=fonts-texgyre \
    /usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf=fonts-dejavu-core
  site_environment report weasyprint
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$home" log -1 --format=%ct 2>/dev/null || date +%s)}
  export SOURCE_DATE_EPOCH
  "$bin/python3" -B "$home/packaging/site/paper.py" "$home/docs/design.md" "$site/hakmem-design.pdf" \
    "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)" || die "could not make the report"
  printf '%s\n' "$site/hakmem-design.pdf"
}

# The words that codespell does not know, and that are right.
spelled_so=allocatedp,simpy

make_site() {
  case $* in
    '') ;;
    --pdf) make_paper; return ;;
    *) wrong "takes --pdf, or nothing" ;;
  esac
  site_environment pages "mkdocs and codespell"
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
