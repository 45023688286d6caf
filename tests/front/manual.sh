#!/bin/sh
# manual.sh SOURCE BUILD: the pages of the manual tell every verb, option and function, and formatters accept them; the
# completions of bash and zsh offer what hak has.
set -eu
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
# lint FILE: mandoc and groff have nothing to say about it.
lint() {
  if command -v mandoc >/dev/null; then
    mandoc -T lint -W warning "$1" >"$work/lint" 2>&1 || return 1
  fi
  ! command -v man >/dev/null || man --warnings -l "$1" 2>"$work/lint" >"$work/text"
  [ ! -s "$work/lint" ]
}
command -v mandoc >/dev/null || echo "not checked by mandoc, which is not here"
page() { sed 's/\\-/-/g; s/\\e/\\/g; s/\\f[BIR]//g' "$build/man/$1"; }
# tells PAGE WORD...: each word is a line's first, as it names what the next lines are about.
tells() {
  page "$1" >"$work/page"
  shift
  for word in "$@"; do grep -q "^\(\.SS \"hak \)\{0,1\}\(.*[* ]\)\{0,1\}$word\>" "$work/page" || fail "no $word in the manual"; done
}

# They are built in a checkout of any name.
odd="$work/o'b \$x"
mkdir "$odd"
(cd "$source" && tar --exclude=./build --exclude=./.git -cf - .) | tar -xf - -C "$odd"
{ cmake -S "$odd" -B "$odd/build" -G Ninja -DHAKMEM_TESTS=OFF -DHAKMEM_TOOLS=OFF && ninja -C "$odd/build" man/hak.1; } >"$work/out" 2>&1 ||
  fail "a checkout with an odd name: $(cat "$work/out")"
diff -I '^\.TH' "$build/man/hak.1" "$odd/build/man/hak.1" || fail "hak.1 of a checkout with an odd name"

for page in "$build"/man/*; do
  page=${page##*/}
  lint "$build/man/$page" || fail "$page: $(cat "$work/lint")"
  "$source/packaging/manual.sh" "$source" "$page" "$build/bin/${page%.1}" | diff -I '^\.TH' "$build/man/$page" - || fail "$page is not current"
done
printf '.TH X 1 2026-11-22 x\n.SH NAME\nx \\- y\n.RS\n.XY\n' >"$work/wrong.1" # the control
lint "$work/wrong.1" && fail "a wrong page is accepted"

verbs=$(sed -n 's/^verb_\([a-z]*\)() .*/\1/p' "$source/hak" | grep -v help)
# shellcheck disable=SC2046,SC2086  # words
{
  tells hak.1 $verbs
  tells hakmem.7 $("$build/bin/hakmem-options" | grep -o '^HAKMEM_[A-Z_]*')
  tells hakmem.h.3 $(nm -D --defined-only "$build/lib/libhakmem.so" | sed -n 's/.* \(hak_.*\)/\1/p')
}
(tells hak.1 nonsense) >/dev/null && fail "a verb that is not told is not missed"

# bash: offers WORDS...: what is offered for the last of these words.
if command -v bash >/dev/null; then
  offers() {
    wanted=$1
    shift
    got=$(bash --norc -c '. "$0"; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _hak; printf "%s " "${COMPREPLY[@]}"' \
      "$source/packaging/completions/hak.bash" "$source/hak" "$@" | xargs -n 1 | sort -u | paste -sd ' ' -)
    [ "$got" = "$wanted" ] || fail "bash: for '$*' it offers '$got', not '$wanted'"
  }
  for verb in $verbs; do offers "$verb" "$verb"; done
  offers '--profile' run --p
  offers 'secure speed' run --profile s
  offers 'enable env' help en
  offers 'uname' run --quiet -- unam
  offers "$$" stats $$
fi
if command -v zsh >/dev/null; then
  cat >"$work/offers.zsh" <<'T'
# offers.zsh FOLDER LINE...: what a terminal shows after each line and a tab.
zmodload zsh/zpty
TERM=dumb
zpty shell zsh -f -i
zpty -w shell "PS1=rea''dy; fpath=($1 \$fpath); autoload -Uz compinit; compinit -D -u; zstyle ':completion:*' verbose yes"
zpty -r -m shell said '*ready*' # the line editor reads from here on
shift
for line; do
  zpty -w -n shell "$line"$'\t'
  zpty -w shell $'\x15print en''ded'
  zpty -r -m shell said $'*\nended*ready*'
  print -r -- "[$line] ${${said//$'\n'/ }//$'\r'/}"
done
T
  mkdir "$work/functions"
  cp "$source/packaging/completions/hak.zsh" "$work/functions/_hak"
  PATH=$source:$PATH timeout 60 zsh -f "$work/offers.zsh" "$work/functions" 'hak opt' 'hak run --prof' 'hak run --profile bal' \
    'hak run -- unam' 'hak ' >"$work/said" 2>&1 || fail "zsh: $(cat "$work/said")"
  for row in '[hak opt] .*hak options' '[hak run --prof] .*hak run --profile' '[hak run --profile bal] .*--profile balanced' \
    '[hak run -- unam] .*-- uname' '[hak ] .*-- run CMD on hakmem'; do
    grep -q -e "^\\$row" "$work/said" || fail "zsh: $row: $(cat -v "$work/said")"
  done
else
  echo "not checked with zsh, which is not here"
fi
echo "the manual and the completions tell what there is"
