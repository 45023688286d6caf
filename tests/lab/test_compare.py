"""hak compare, from the command line, on programs and allocators made for it."""

import os
import re
import shutil
import signal
import time

import pytest
from made_compare import LIBC, gone, marked

from lab.judge import recommend, stats
from lab.judge.recommend import CPU, MEMORY
from lab.run import compare, program, tree
from lab.run.allocators import ROOT
from lab.show import compare as compare_table

pytest_plugins = ("made_compare",)


def figures(found) -> dict:
    """allocator -> figure -> round -> value, from rows."""
    values: dict = {}
    for row in found:
        for key, value in row.result.items():
            values.setdefault(row.allocator, {}).setdefault(key, {})[row.run] = value
    return values


def one_line(text: str, *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in text.splitlines())


# --- programs -------------------------------------------------------------------------------------------


# One of ten pairs that other work disturbs hides that an allocator is slower, and ten that lie on one side by chance make
# a difference of none. The comparison is made again then, as in test_verdict.
TRIES = 3


def test_slow_is_slower_large_is_larger_and_libc_twice_is_the_same(hak, made):
    level = recommend.level(3)

    def verdicts(name):
        return [recommend.compare(values[name], values["glibc"], figure, level) for figure in (CPU, MEMORY)]

    for _ in range(TRIES):
        done = hak("--runs", 10, "--against", f"slow={made}/slow.so,large={made}/large.so,again={LIBC}",
                   "--same-output", "--", made / "work")  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert not one_line(done.stdout, "slow", "faster")
        values = figures(hak.rows())
        again = [found.verdict for found in verdicts("again")]
        if one_line(done.stdout, "slow", "slower") and again == [stats.SAME, stats.SAME]:
            break
    assert verdicts("slow")[0].counts == 1
    assert verdicts("large")[1].counts == 1
    assert verdicts("large")[1].verdict == "larger"
    assert again == [stats.SAME, stats.SAME]
    assert one_line(done.stdout, "slow", "slower")
    assert one_line(done.stdout, "large", "larger")
    assert "\nstay with glibc: no allocator is faster or smaller" in done.stdout
    assert all(row.kind == "compare" and row.n == 10 for row in hak.rows())


def test_a_peer_that_is_better_is_recommended(hak, made):
    for _ in range(TRIES):
        done = hak("--runs", 10, "--against", f"keeping={made}/keeping.so,large={made}/large.so", "--", made / "work")
        assert done.returncode == 0, done.stderr
        if "\nuse keeping: " in done.stdout:
            break
    assert "\nuse keeping: " in done.stdout
    assert re.search(r"To use it: env LD_PRELOAD=\S+/keeping\.so \S+/work", done.stdout)
    values = figures(hak.rows())
    faults = recommend.compare(values["keeping"], values["glibc"], compare_table.FAULTS, recommend.level(2))
    assert faults.verdict == "fewer"  # but no word of it is in the family
    assert "page faults" in done.stdout
    assert "fewer" not in done.stdout


def test_what_fails_or_is_missing_is_a_line(hak, made, no_peers):
    (made / "text.so").write_text("no library")
    done = hak("--runs", 1, "--against", f"broken={made}/broken.so,snmalloc,text={made}/text.so,again={LIBC}",
               "--", made / "work")  # fmt: skip
    assert done.returncode == 1
    assert one_line(done.stdout, "broken: died of SIGABRT")
    assert one_line(done.stdout, "snmalloc: not installed")
    assert one_line(done.stdout, "text: malloc did not come from it, but from")
    assert "no recommendation: n = 1 is too few" in done.stdout
    assert {row.allocator for row in hak.rows()} == {"glibc", "again"}


def test_what_cannot_be_compared(hak, made):
    def refused(status, *words):
        done = hak("--runs", 1, "--against", f"again={LIBC}", "--", *words)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "no-such-program: command not found" in refused(2, "no-such-program")
    assert "work.c: not an executable file" in refused(2, made / "work.c")
    assert "static is statically linked, so nothing can be preloaded" in refused(2, made / "static")
    assert "status 3: oops" in refused(1, "sh", "-c", "echo oops >&2; exit 3")
    assert "inside has a malloc linked into itself" in refused(1, made / "inside")


def test_wrong_words(hak, made):
    for words in (["--ready", "true"], ["--pin", "999"], ["--against", "nonsense"], ["--env", "x"], ["--runs", "0"],
                  ["--stdin", "/nowhere"], ["--against", "glibc"], ["--against", f"glibc={LIBC}"], ["--against", ""],
                  ["--lib", f"tcmalloc={LIBC}", "--against", "hakmem"],
                  ["--env", "HAKMEM_X=1", "--against", "hakmem"], []):  # fmt: skip
        done = hak(*words, *([made / "work"] if words else []))
        assert done.returncode == 2, (words, done.stderr)
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_a_program_with_a_malloc_of_its_own(hak, made):
    done = hak("--runs", 1, "--against", f"slow={made}/slow.so", "--", made / "linked")
    assert done.returncode == 0, done.stderr
    assert one_line(done.stdout, "note: the program brings its own malloc, own.so")
    assert [row.allocator for row in hak.rows()] == ["as-is", "glibc", "slow"]


def test_output_must_be_the_same(hak, made):
    done = hak("--runs", 1, "--against", f"again={LIBC}", "--same-output", "--", "sh", "-c", "echo 1; echo $LD_PRELOAD")
    assert done.returncode == 1
    assert one_line(done.stdout, "again: its output is not glibc's: line 2 differs")
    done = hak("--runs", 1, "--against", f"again={LIBC}", "--same-output", "--", "sh", "-c", "echo $$")
    assert done.returncode == 1
    assert "its output differs from run to run on glibc itself" in done.stderr


@pytest.mark.parametrize("user", [0, 1500, 2000, 4000])
def test_all_environments_are_of_one_length(hak, monkeypatch, tmp_path, user):
    """Wherever the user's environment ends, LD_PRELOAD and a profile's settings do not move the stack."""

    def lengths() -> list[str]:
        out = tmp_path / "lengths"
        out.unlink(missing_ok=True)
        done = hak("--runs", 1, "--against", f"again={LIBC},hakmem-lean", "--",
                   "sh", "-c", "wc -c < /proc/$$/environ >> $0", out)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return out.read_text().split()

    monkeypatch.setenv("FILLING", "x" * user)
    found = lengths()
    assert [len(set(found[at : at + 3])) for at in (0, 3, 6)] == [1, 1, 1]  # three allocators in each round
    assert found[3] == found[6]
    monkeypatch.setattr(compare.Comparison, "_environment_bytes", lambda *_: 1)  # the control
    assert len(set(lengths()[3:6])) == 3


RUNS_COUNTED = "echo >> $0; test $(wc -l < $0) != $1"  # fails in the $1-th run


def test_a_fault_while_system_calls_are_counted(hak, tmp_path):
    """One round of two: runs 1 and 2 warm up, 3 and 4 are measured, 5 and 6 counted."""

    def failing(number):
        (tmp_path / "count").unlink(missing_ok=True)
        return hak(
            "--runs", 1, "--against", f"again={LIBC}", "--", "sh", "-c", RUNS_COUNTED, tmp_path / "count", number
        )

    done = failing(6)
    assert done.returncode == 1
    assert one_line(done.stdout, "again: the run that counts system calls: status 1")
    assert "stay with glibc: no other allocator ran the program" in done.stdout
    done = failing(5)
    assert done.returncode == 1
    assert "failed on glibc in the run that counts system calls: status 1" in done.stderr
    assert "recommendation" not in done.stdout
    assert failing(7).returncode == 0  # the control


def test_rows_that_cannot_be_stored(hak, made):
    """/dev/full: writing to it is writing to a full disk. The comparison goes on."""
    words = ("--runs", 2, "--against", f"again={LIBC}", "--", made / "work")
    done = hak(*words, "--json", "/dev/full")
    assert done.returncode == 0  # an argument of CMD: the control
    done = hak("--json", "/dev/full", *words)
    assert done.returncode == 1
    assert one_line(done.stderr, "hak: --json: /dev/full: No space left on device; rows are no longer stored")
    assert "Traceback" not in done.stderr
    assert one_line(done.stdout, "[2 runs each, in turns]")
    assert "no recommendation: n = 2 is too few" in done.stdout


def test_a_process_that_does_not_end(hak, tmp_path, monkeypatch):
    """One in a session of its own, which only tree.end reaches: here it cannot kill it."""
    (tmp_path / "lasting").symlink_to(shutil.which("sleep"))
    words = ("--runs", 2, "--against", f"again={LIBC}", "--", "setsid", "--fork", tmp_path / "lasting", 60)
    assert hak(*words).returncode == 0
    assert gone(str(tmp_path / "lasting"))  # the control
    monkeypatch.setattr(tree, "END_SECONDS", 0.3)
    real = os.kill
    monkeypatch.setattr(os, "kill", lambda *_: None)
    began = time.monotonic()
    done = hak(*words)
    assert time.monotonic() - began < 50
    left = sorted(marked(str(tmp_path / "lasting")))
    for pid in left:
        real(pid, signal.SIGKILL)
    assert len(left) == 1
    assert done.returncode == 1
    assert f"process {left[0]} of setsid" in done.stderr
    assert "does not end, 0.3 s after SIGKILL" in done.stderr


def test_stdin_and_environment(hak, tmp_path, monkeypatch):
    (tmp_path / "given").write_text("some words\n")
    check = 'test "$(cat)" = "$1" && test "$A" = b && test -z "$MALLOC_ARENA_MAX" && test "$KEPT" = "$2"'
    words = ("--runs", 1, "--against", f"again={LIBC}", "--env", "A=b")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("KEPT", "yes")
    done = hak(*words, "--stdin", tmp_path / "given", "--", "sh", "-c", check, "sh", "some words", "yes")
    assert done.returncode == 0, done.stderr
    assert one_line(done.stdout, "note: not passed on to CMD: MALLOC_ARENA_MAX")
    assert hak(*words, "--clean", "--", "sh", "-c", check, "sh", "", "").returncode == 0
    assert hak(*words, "--clean", "--", "sh", "-c", check, "sh", "", "yes").returncode == 1


def test_which_variables_disturb(monkeypatch):
    for name in ("LD_PRELOAD", "HAKMEM_PROFILE", "MIMALLOC_SHOW_STATS", "MALLOC_CONF", "MALLOC_PERTURB_", "GLIBC_TUNABLES",
                 "TCMALLOC_SAMPLE_PARAMETER", "LD_DEBUG"):  # fmt: skip
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("MALLOCATOR", "1")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:/mine")
    kept, dropped = compare.user_environment(False, {"MALLOC_ARENA_MAX": "2"})
    assert len(dropped) == 8
    assert kept["MALLOCATOR"] == "1"
    assert kept["MALLOC_ARENA_MAX"] == "2"
    assert kept["PYTHONPATH"] == "/mine"
    monkeypatch.setenv("HAK_LIB", "/lib/x.so")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert not {"HAK_LIB", "PYTHONPATH"} & compare.user_environment(False, {})[0].keys()


def test_what_a_shell_ends_with(tmp_path, made):
    for word, status in (("executable-x", 127), (f"{tmp_path}/executable-x", 127), (str(made / "work.c"), 126)):
        with pytest.raises(program.Refused) as refused:
            program.find(word, None)
        assert refused.value.shell_status == status


# --- whose malloc ---------------------------------------------------------------------------------------


def test_what_may_be_preloaded_into(made, tmp_path):
    assert program.why_no_preload(str(made / "work")) == ""
    assert "statically linked" in program.why_no_preload(str(made / "static"))
    script = tmp_path / "script"
    script.write_text(f"#!{made}/static\n")
    assert program.why_no_preload(str(script)).startswith(f"is a script of {made}/static, which is statically")
    script.write_text("#!/bin/sh\n")
    assert program.why_no_preload(str(script)) == ""
    other = bytearray((made / "work").read_bytes())
    other[4] = 1
    (tmp_path / "narrow").write_bytes(other)
    assert "word size" in program.why_no_preload(str(tmp_path / "narrow"))
    (tmp_path / "cut").write_bytes(other[:20])
    program.why_no_preload(str(tmp_path / "cut"))


def test_set_uid(made, tmp_path):
    raised = tmp_path / "raised"
    shutil.copy(made / "work", raised)
    if os.getuid():
        pytest.skip("only root may give a file away")
    os.chown(raised, 65534, 65534)
    raised.chmod(0o4755)
    assert "is set-uid" in program.why_no_preload(str(raised))
    raised.chmod(0o755)
    assert program.why_no_preload(str(raised)) == ""


def test_reports_of_the_loader(tmp_path):
    def line(source, target, symbol):
        return f"   7:\tbinding file {source} [0] to {target} [0]: normal symbol `{symbol}' [GLIBC_2.2.5]\n"

    # A program without PIE is named beside the library; CRYPTO_malloc is no malloc.
    (tmp_path / "bindings.7").write_text(line("/lib/libc.so.6", "prog", "malloc") + line("prog", "/lib/x.so", "malloc")
                                         + line("/lib/c.so", "/lib/c.so", "CRYPTO_malloc"))  # fmt: skip
    found = program.served(str(tmp_path))
    assert found.by("/lib/x.so")
    assert not found.by("/lib/c.so")
    assert found.not_by("/lib/x.so") == ""
    (tmp_path / "bindings.8").write_text(line("/lib/libc.so.6", "/lib/libc.so.6", "malloc"))
    assert program.served(str(tmp_path)).not_by("/lib/x.so") == os.path.realpath("/lib/libc.so.6")
    assert program.served(str(tmp_path)).own
