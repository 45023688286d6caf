"""hak compare, from the command line, on programs and allocators made for it."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import types

import pytest

import lab.__main__
from lab.judge import recommend
from lab.judge.recommend import CPU, MEMORY
from lab.run import compare, program, server, tree
from lab.run.allocators import ROOT
from lab.show import compare as compare_table
from lab.store import rows

LIBC = compare._libc()

# Blocks of 4 MiB, one byte a page, which glibc's malloc maps and unmaps each time; then small ones.
WORK = """
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  for (int i = 0; i < 40; i++) {
    volatile char *block = malloc(4 << 20);
    for (size_t at = 0; at < 4 << 20; at += 4096)
      block[at] = 1;
    free((void *)block);
  }
  for (int i = 0; i < 20000; i++)
    free(malloc((size_t)(i % 500)));
  puts("done");
}
"""
HEAD = """
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
void *__libc_malloc(size_t size);
void __libc_free(void *block);
"""
SLOW = (
    HEAD
    + """
void *malloc(size_t size) {
  for (volatile int i = 0; i < 8000; i++) {}
  return __libc_malloc(size);
}
"""
)
LARGE = (
    HEAD
    + """
__attribute__((constructor)) static void start(void) {
  char *waste = mmap(NULL, 24 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(waste, 1, 24 << 20);
}
void *malloc(size_t size) { return __libc_malloc(size); }
"""
)
KEEPING = (
    HEAD
    + """
static char *kept;
void *malloc(size_t size) {
  if (size != 4 << 20)
    return __libc_malloc(size);
  if (!kept)
    kept = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return kept;
}
void free(void *block) {
  if (block != kept)
    __libc_free(block);
}
"""
)
BROKEN = HEAD + "void *malloc(size_t size) { return size ? (abort(), NULL) : NULL; }\n"
OWN = HEAD + "void *malloc(size_t size) { return __libc_malloc(size); }\n"


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> pathlib.Path:
    """A folder with the programs and libraries of this file."""
    folder = tmp_path_factory.mktemp("made")

    def cc(name, source, *flags):
        (folder / f"{name}.c").write_text(source)
        subprocess.run(["cc", "-O1", "-fno-builtin", "-o", name, f"{name}.c", *flags], cwd=folder, check=True)

    for name, source in (("slow", SLOW), ("large", LARGE), ("keeping", KEEPING), ("broken", BROKEN), ("own", OWN)):
        cc(f"{name}.so", source, "-shared", "-fPIC")
    cc("work", WORK)
    cc("static", WORK, "-static")
    cc("linked", WORK, "-Wl,--no-as-needed", f"{folder}/own.so")
    cc("inside", OWN + WORK, "-rdynamic")
    return folder


@pytest.fixture
def hak(build, library, tmp_path, monkeypatch, capsys):
    """hak(WORD...) is hak compare in this process: an object with returncode, stdout, stderr. hak.rows(): what it wrote."""
    monkeypatch.setenv("HAK_BUILD", str(build))
    monkeypatch.setenv("HAK_LIB", str(library))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def words(*more):
        return ["compare", "--json", str(tmp_path / "rows"), *map(str, more)]

    def run(*more):
        with pytest.raises(SystemExit) as ended:
            lab.__main__.main(words(*more))
        said = capsys.readouterr()
        return types.SimpleNamespace(returncode=ended.value.code, stdout=said.out, stderr=said.err)

    run.words = lambda *more: [sys.executable, "-B", "-m", "lab", *words(*more)]
    run.rows = lambda: rows.read([tmp_path / "rows"])
    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def figures(found) -> dict:
    """allocator -> figure -> round -> value, from rows."""
    values: dict = {}
    for row in found:
        for key, value in row.result.items():
            values.setdefault(row.allocator, {}).setdefault(key, {})[row.run] = value
    return values


def one_line(text: str, *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in text.splitlines())


def marked(mark: str) -> list[int]:
    """Processes that have the mark among their arguments."""
    found = []
    for word in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark.encode() in pathlib.Path(f"/proc/{word}/cmdline").read_bytes() and int(word) != os.getpid():
                found.append(int(word))
    return found


def gone(mark: str) -> bool:
    """None is left; what was killed may need a moment."""
    until = time.monotonic() + 5
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.02)
    return not marked(mark)


# --- programs -------------------------------------------------------------------------------------------


def test_slow_is_slower_large_is_larger_and_libc_twice_is_the_same(hak, made):
    done = hak("--runs", 10, "--against", f"slow={made}/slow.so,large={made}/large.so,again={LIBC}", "--same-output",
               "--", made / "work")  # fmt: skip
    assert done.returncode == 0, done.stderr
    values = figures(hak.rows())
    level = recommend.level(3)

    def verdict(name, figure):
        return recommend.compare(values[name], values["glibc"], figure, level)

    assert verdict("slow", CPU).counts == 1
    assert verdict("large", MEMORY).counts == 1
    assert verdict("large", MEMORY).verdict == "larger"
    assert verdict("again", MEMORY).verdict == verdict("again", CPU).verdict == "no difference"
    assert one_line(done.stdout, "slow", "slower")
    assert one_line(done.stdout, "large", "larger")
    assert "\nstay with glibc: no allocator is faster or smaller" in done.stdout
    assert all(row.kind == "compare" and row.n == 10 for row in hak.rows())


def test_a_peer_that_is_better_is_recommended(hak, made):
    done = hak("--runs", 10, "--against", f"keeping={made}/keeping.so,slow={made}/slow.so", "--", made / "work")
    assert done.returncode == 0, done.stderr
    assert "\nuse keeping: " in done.stdout
    assert re.search(r"To use it: env LD_PRELOAD=\S+/keeping\.so \S+/work", done.stdout)
    values = figures(hak.rows())
    faults = recommend.compare(values["keeping"], values["glibc"], compare_table.FAULTS, recommend.level(2))
    assert faults.verdict == "fewer"  # but no word of it is in the family
    assert "page faults" in done.stdout
    assert "fewer" not in done.stdout


def test_what_fails_or_is_missing_is_a_line(hak, made):
    (made / "text.so").write_text("no library")
    done = hak("--runs", 1, "--against", f"broken={made}/broken.so,absent=/nowhere/x.so,text={made}/text.so,again={LIBC}",
               "--", made / "work")  # fmt: skip
    assert done.returncode == 1
    assert one_line(done.stdout, "broken: died of SIGABRT")
    assert one_line(done.stdout, "absent: no file /nowhere/x.so")
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
                  ["--stdin", "/nowhere"], ["--against", "glibc"], []):  # fmt: skip
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
    assert time.monotonic() - began < 10
    left = marked(str(tmp_path / "lasting"))
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


# --- servers --------------------------------------------------------------------------------------------

SERVER = """
import os, signal, socket, sys, time
mode = sys.argv[1]
if mode == "dies":
    sys.exit("no room")
if mode == "daemon" and os.fork():
    time.sleep(60)
if mode == "daemon":
    os.setsid()
    if os.fork():
        os._exit(0)
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "mute":
    time.sleep(60)
listening = socket.socket(socket.AF_UNIX)
with __import__("contextlib").suppress(OSError):
    os.unlink(sys.argv[2])
listening.bind(sys.argv[2])
listening.listen()
while True:
    connection = listening.accept()[0]
    if mode == "quits":
        os._exit(5)
    work = [bytes(1000) for _ in range(20000)]
    connection.sendall(b"answer\\n")
    connection.close()
"""
LOAD = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
print(connection.recv(100))
"""


@pytest.fixture
def served(hak, tmp_path):
    """served(MODE, WORD...) compares a small server; its folder's path is the mark of all its processes."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "load.py").write_text(LOAD)

    def words(mode, *more, until=None):
        return ["--runs", "1", "--against", f"again={LIBC}", *map(str, more), "--until", until or run.load, "--",
                "python3", "-IS", f"{tmp_path}/server.py", mode, f"{tmp_path}/socket"]  # fmt: skip

    def run(mode, *more, until=None):
        return hak(*words(mode, *more, until=until))

    run.words, run.mark = words, f"{tmp_path}/server.py"
    run.load = f"python3 -IS {tmp_path}/load.py {tmp_path}/socket"
    return run


def test_a_server_is_loaded_and_stopped(served, hak):
    done = served("plain", "--same-output")
    assert done.returncode == 0, done.stderr
    assert [row.allocator for row in hak.rows()] == ["glibc", "again"]
    result = hak.rows()[0].result
    assert result["rss_peak_kb"] >= result["rss_end_kb"] > 5000
    assert result["cpu_seconds"] < result["seconds"] < 5
    assert result["faults"] > 1000
    assert "RSS at the end of the load" in done.stdout
    assert gone(served.mark)


@pytest.mark.parametrize(("mode", "sentence"), [
    ("dies", "the server ended before it served: status 1: no room"),
    ("quits", "the server ended during the load: status 5"),
    ("mute", "no process of it listens after 1 s"),
])  # fmt: skip
def test_a_server_that_fails(served, mode, sentence):
    done = served(mode, "--timeout", "1")
    assert done.returncode == 1
    assert sentence in done.stderr
    assert gone(served.mark)


def test_ready(served):
    assert "--ready did not succeed in 1 s" in served("plain", "--timeout", "1", "--ready", "false").stderr
    assert served("plain", "--ready", served.load).returncode == 0


def test_a_load_that_fails_or_hangs(served):
    done = served("plain", until="echo bad >&2; exit 4")
    assert "the load failed: status 4: bad" in done.stderr
    done = served("plain", "--timeout", "1", until="sleep 30")
    assert "the load failed: no end after 1 s" in done.stderr
    assert gone(served.mark)


def test_daemons_do_not_stay(served):
    done = served("daemon")
    assert done.returncode == 0, done.stderr
    assert gone(served.mark)


def test_a_server_that_is_called_measure(served, hak, tmp_path, monkeypatch):
    """Only the lab's own file starts programs; another of that name is the user's."""
    shutil.copy(os.path.realpath(sys.executable), tmp_path / "measure")
    words = [tmp_path / "measure" if word == "python3" else word for word in served.words("plain", "--timeout", "1")]
    done = hak(*words)
    assert done.returncode == 0, done.stderr
    assert hak.rows()[0].result["rss_end_kb"] > 5000
    monkeypatch.setattr(server.Server, "_is_starter", lambda _self, pid: b"measure" in
                        pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())  # fmt: skip
    assert "no process of it listens after 1 s" in hak(*words).stderr  # the control
    assert gone(served.mark)


def test_a_deaf_server_is_killed(served, build, monkeypatch, tmp_path):
    monkeypatch.setattr(server, "STOP_SECONDS", 0.3)
    words = served.words("deaf")
    plan = compare.Plan(words[words.index("--") + 1 :], str(build), dict(os.environ), 1, 20.0,
                        until=words[words.index("--until") + 1])  # fmt: skip
    comparison = compare.Comparison(plan, [compare.Candidate(compare.Allocator("glibc", None))])
    comparison.run()
    assert comparison.reference.results[1]["seconds"] > 0
    assert gone(served.mark)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_it_is_stopped(served, hak, tmp_path, number):
    process = subprocess.Popen(hak.words(*served.words("daemon", until="sleep 50")), cwd=ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    until = time.monotonic() + 10
    while not (tmp_path / "socket").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert len(marked(served.mark)) >= 4  # hak, measure, the starter, the daemon: the control of gone()
    time.sleep(0.2)
    process.send_signal(number)
    said = process.communicate(timeout=15)[0].decode()
    assert process.returncode == 130
    assert "no recommendation: glibc was not measured" in said
    assert gone(served.mark)


def test_redis(hak, tmp_path):
    if not (shutil.which("redis-server") and shutil.which("redis-benchmark")):
        pytest.skip("redis is not installed")
    socket = tmp_path / "redis"
    done = hak("--runs", 1, "--against", "hakmem", "--until",
               f"redis-benchmark -s {socket} -q -t set,lpush -n 5000 -r 5000 -d 100", "--ready",
               f"redis-cli -s {socket} ping", "--",
               "redis-server", "--port", "0", "--unixsocket", socket, "--save", "")  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = [row.allocator for row in hak.rows()]
    assert names in (["as-is", "glibc", "hakmem"], ["glibc", "hakmem"])
    assert json.loads(rows.dump(hak.rows()[0]))["kind"] == "compare"
    assert gone(str(socket))
