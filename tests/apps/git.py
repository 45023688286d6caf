"""git: init, add, commit, branch, merge, gc, clone, fsck and log; the same objects must come out."""
import pathlib
import tempfile

import app

SCRIPT = r"""
set -e
git init -q -b main one
cd one
git config gc.autoDetach false
i=0
while [ $i -lt 120 ]; do
  mkdir -p "d$((i % 7))"
  seq 1 $((i * 13 % 900 + 5)) | sed "s/^/line $i /" >"d$((i % 7))/f$i"
  i=$((i + 1))
done
git add .
git commit -qm first
git checkout -qb side
for d in d0 d3; do for f in $d/*; do echo side >>"$f"; done; done
git commit -qam side
git checkout -q main
for f in d1/*; do sed -i 5d "$f"; done
git commit -qam main
git merge -q --no-edit side
git gc -q --aggressive --prune=now
git fsck --strict
cd ..
git clone -q --no-local one two
cd two
git log --stat --format='%H %T %s'
git rev-list --objects --all | sort
git diff HEAD~1 HEAD
git blame d0/f7
git grep -c line | head -50
"""

EXTRA = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": "2001-02-03T04:05:06Z",
    "GIT_COMMITTER_NAME": "C", "GIT_COMMITTER_EMAIL": "c@example.org", "GIT_COMMITTER_DATE": "2001-02-03T04:05:06Z",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}  # fmt: skip


def test():
    app.need("git")
    results = []
    for on_hakmem in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            # gc tells its progress from several processes on stderr: only stdout is compared.
            result = app.run(["/bin/sh", "-c", SCRIPT], on_hakmem, cwd=folder, extra=EXTRA | {"HOME": folder})
            app.check(result.code == 0, f"status {result.code}: {result.stderr[-2000:]!r}")
            app.check(pathlib.Path(folder, "two", "d0", "f7").exists(), "no clone")
            results.append(result)
    app.check(results[0].stdout == results[1].stdout, "other objects or other text on hakmem")
    app.check(len(results[1].reports) > 100, f"{len(results[1].reports)} processes on hakmem")
    most = app.proof(results[1], 1 << 20)
    return f"git: ok ({len(results[1].reports)} processes, largest heap {most >> 20} MiB)"


if __name__ == "__main__":
    app.main(test)
