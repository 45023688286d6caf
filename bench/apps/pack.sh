#!/bin/sh
# pack.sh THREADS: makes a repository of files in revisions, which compress well, and packs all of it anew.
set -e
export HOME="$PWD" GIT_CONFIG_NOSYSTEM=1
git init -q --bare r
awk 'BEGIN {
  for (commit = 1; commit <= 14; commit++) {
    printf "commit refs/heads/main\ncommitter a <a@a> %d +0000\ndata 1\nx\n", 1000000000 + commit
    for (file = 1; file <= 60; file++) {
      text = ""
      lines = 200 + file * 37 % 900
      for (line = 1; line <= lines; line++)
        text = text "line " line " of file " file " is " (line * file + (line % 24 == commit % 24 ? commit : 0)) * 7919 % 99991 "\n"
      printf "M 100644 inline d%d/f%d\ndata %d\n%s", file % 7, file, length(text), text
    }
  }
}' | git -C r fast-import --quiet
exec git -C r -c pack.threads="$1" pack-objects --all --no-reuse-delta --no-reuse-object --window=40 --depth=50 -q --stdout </dev/null >pack
