#!/bin/sh
# manual.sh SOURCE PAGE [TOOL]: prints a page of the manual: hak.1 from what `hak help` says where hakmem is installed,
# hakmem.7 from the README's first paragraph and docs/options.md, hakmem.h.3 from the header, hakmem-NAME.1 from what the
# program TOOL says to --help.
set -eu
source=$1
version=$(sed -n 's/^#define HAKMEM_VERSION_[A-Z]* //p' "$source/include/hakmem/hakmem.h" | paste -sd . -)
date=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%d)

head() { printf '.TH %s %s %s "hakmem %s"\n' "$1" "$2" "$date" "$version"; }

# Functions of awk for all pages.
# shellcheck disable=SC2016
functions='
  function roff(text) {
    gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text)
    if (text ~ /^[.\047]/) text = "\\&" text
    return text
  }
  # Bold what stands between backquotes, underlined what stands between asterisks.
  function marked(text) {
    text = roff(text)
    while (match(text, /\*[a-z][a-z ]*\*/))
      text = substr(text, 1, RSTART - 1) "\\fI" substr(text, RSTART + 1, RLENGTH - 2) "\\fR" substr(text, RSTART + RLENGTH)
    while (match(text, /`[^`]*`/))
      text = substr(text, 1, RSTART - 1) "\\fB" substr(text, RSTART + 1, RLENGTH - 2) "\\fR" substr(text, RSTART + RLENGTH)
    return text
  }'

# The help of one verb: synopsis up to the first empty line, then sentences and indented rows "what   text".
help_to_roff() {
  awk "$functions"'
    /^$/ { if (!told) { told = 1; printf "%s.PP\n", synopsis } else if (!list) print ".PP"; list = 0; next }
    !told && match($0, /   +/) {
      print ".TP\n\\fB" roff(substr($0, 1, RSTART - 1)) "\\fR\n" roff(substr($0, RSTART + RLENGTH))
      next
    }
    !told { synopsis = synopsis separator "\\fB" roff($0) "\\fR\n"; separator = ".br\n"; next }
    match($0, /^  [^ ]+( [^ ]+)*   */) && RLENGTH < length($0) && $0 !~ /^ {12}/ {
      name = substr($0, 1, RLENGTH)
      gsub(/^ +| +$/, "", name)
      print ".TP\n\\fB" roff(name) "\\fR\n" roff(substr($0, RLENGTH + 1))
      list = 1
      next
    }
    /^ / && list { sub(/^ +/, ""); print roff($0); next }
    { if (list) print ".PP"; list = 0; print roff($0) }
    END { if (!told) printf "%s", synopsis }'
}

hak_1() {
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cp "$source/hak" "$work/hak" # outside its checkout it knows what it can do installed
  head HAK 1
  "$work/hak" help | awk "$functions"'
    NR == 1 { sub(/^hak: /, ""); sub(/\.$/, ""); print ".SH NAME\nhak \\- " roff($0) "\n.SH SYNOPSIS\n.B hak\n\\fIVERB\\fR [\\fIARGUMENT\\fR...]\n.SH DESCRIPTION" }
    /^  hak / {
      name = $0
      sub(/^  /, "", name); sub(/  +.*/, "", name)
      text = substr($0, length(name) + 3)
      sub(/^ +/, "", text)
      print ".TP\n\\fB" roff(name) "\\fR\n" roff(text)
    }'
  echo '.SH VERBS'
  for verb in $("$work/hak" help | grep -o '\(^ \|;\) hak [a-z]*' | awk '$NF != "help" && !seen[$NF]++ { print $NF }'); do
    printf '.SS "hak %s"\n' "$verb"
    "$work/hak" help "$verb" | help_to_roff
  done
  printf '.SH SEE ALSO\n.BR hakmem (7),\n.BR hakmem.h (3)\n'
}

# The first sentence says what the program does.
tool_1() {
  name=${1##*/}
  head "$(echo "$name" | tr '[:lower:]' '[:upper:]')" 1
  printf '.SH NAME\n%s \\- ' "$name" | sed 's/m-/m\\-/'
  "$1" --help | awk 'told { text = text " " $0 } /^$/ { told = 1 }
    END { sub(/^ */, "", text); sub(/[.:;].*/, "", text); sub(/, .*/, "", text); print tolower(substr(text, 1, 1)) substr(text, 2) }'
  echo '.SH SYNOPSIS'
  "$1" --help | help_to_roff | awk '/^\.PP$/ && !told++ { $0 = ".SH DESCRIPTION" } { print }'
  printf '.SH SEE ALSO\n.BR hak (1),\n.BR hakmem (7)\n'
}

hakmem_7() {
  head HAKMEM 7
  printf '.SH NAME\nhakmem \\- a memory allocator that replaces malloc\n'
  printf '.SH SYNOPSIS\n.nf\n\\fBhak run \\-\\-\\fR \\fICMD\\fR\n\\fBLD_PRELOAD=libhakmem.so.%s\\fR \\fICMD\\fR\n.fi\n' "${version%%.*}"
  echo '.SH DESCRIPTION'
  awk "$functions"'NR > 2 && /^$/ { exit } NR > 2 { text = text $0 "\n" } END { printf "%s", marked(text) }' "$source/README.md"
  echo '.SH OPTIONS'
  # The first part has paragraphs and the table of values; a table in the second says what a change does.
  awk "$functions"'
    function flush() {
      if (text != "" && text !~ /^Made from/) printf "%s%s", separator, marked(text)
      if (text != "" && text !~ /^Made from/) separator = ".PP\n"
      text = ""
    }
    FNR == NR { if (/^\| `[a-z]/) { split($0, cell, / *\| */); gsub(/`/, "", cell[2]); change[cell[2]] = cell[3] } next }
    /^## / { part = $0; if (part == "## Other names") { print ".SH OTHER NAMES"; separator = "" } next }
    part == "## Changing an option while the program runs" { next }
    part && /^\| `/ { split($0, cell, / *\| */); print ".TP\n" marked(cell[2]) "\n" marked(cell[3]); next }
    /^\| option/ { for (last = split($0, preset, / *\| */); preset[last] != "may change"; last--); next }
    /^\| `/ {
      split($0, cell, / *\| */)
      print ".TP\n" marked(cell[2]) ": " marked(cell[3]) "\n" marked(cell[last + 1])
      name = tolower(substr(cell[2], 9))
      sub(/`/, "", name)
      values = ""
      for (i = 4; i < last; i++) values = values (i == 4 ? "" : ", ") preset[i] ": " cell[i]
      if (cell[4] != "") print "Default by preset: " roff(values) "."
      if (name in change) print ".br\nChanged while the program runs: " marked(change[name])
      next
    }
    FNR == 1 || /^\|/ { next }
    /^$/ { flush(); next }
    { text = text $0 "\n" }' "$source/docs/options.md" "$source/docs/options.md"
  printf '.SH SEE ALSO\n.BR hak (1),\n.BR hakmem.h (3)\n'
}

# The first comment of the header is the description; each other one explains the declarations under it.
hakmem_h_3() {
  head HAKMEM.H 3
  awk "$functions"'
    function say(line) {
      if (line == "") { fresh = said; return }
      if (sub(/^  - /, "", line)) { print ".IP \\(bu 2"; fresh = 0 }
      sub(/^ +/, "", line)
      if (fresh) print ".PP"
      fresh = 0
      said = 1
      print marked(line)
    }
    NR == 1 {
      sub(/^\/\* hakmem\.h: /, ""); sub(/\.$/, "")
      print ".SH NAME\nhakmem.h \\- " roff($0) "\n.SH SYNOPSIS\n.B #include <hakmem/hakmem.h>\n.SH DESCRIPTION"
      comment = 1
      next
    }
    /^\/\*/ { comment = 1; lines = 0 }
    comment {
      if (sub(/ *\*\/$/, "")) { comment = 0; if (!described++) { print ".SH FUNCTIONS"; next } }
      sub(/^(\/\*| \*) ?/, "")
      if (described) text[++lines] = $0; else say($0)
      next
    }
    /^(HAK_API|typedef|#define HAK_)/ && lines {
      while ($0 !~ /;$/ && !/^#/ && (getline more) > 0) $0 = $0 " " more
      gsub(/HAK_API |__attribute__\(\(.*\)\)|^#define /, "")
      gsub(/  +/, " "); sub(/ ;$/, ";")
      declarations = declarations (declarations == "" ? "" : "\n.br\n") "\\fB" roff($0) "\\fR"
      next
    }
    declarations != "" {
      print (documented++ ? ".PP\n" : "") declarations "\n.RS 4"
      fresh = 0
      for (i = 1; i <= lines; i++) say(text[i])
      print ".RE"
      declarations = ""
      lines = 0
    }' "$source/include/hakmem/hakmem.h"
  printf '.SH SEE ALSO\n.BR hak (1),\n.BR hakmem (7)\n'
}

case $2 in
  hak.1) hak_1 ;;
  hakmem.7) hakmem_7 ;;
  hakmem.h.3) hakmem_h_3 ;;
  hakmem-*.1) tool_1 "$3" ;;
  *) echo "manual.sh: there is no page $2" >&2; exit 2 ;;
esac
