"""Soaks of a second on libc and on hakmem: what the programs write, what hak soak keeps, and every way to end."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
import time

import cases
import forked
import pytest
import scipy.stats  # noqa: F401  # here once, and not in each child
from test_epochs import HEADER, write

from lab.judge import soak as judge
from lab.run import soak as running
from lab.run.allocators import Allocator
from lab.store import epochs, rows
from lab.verbs import soak as verb

TRIES = 3  # a machine that stands still for a tenth of a second leaves time for one round


# --- the programs -------------------------------------------------------------------------------------

TINY = {
    "random_mixed": "20000 100 1", "larson": "2 20 2 1", "churn": "2000 40 103 2000 1", "handoff": "2 1 20 1",
    "shift": "1 20000 1", "large_mix": "8 16 64 50 1", "cold_churn": "256 8 16 64 100 1",
}  # fmt: skip


def test_the_table_of_works_is_complete(build):
    assert {work.command.split()[0] for work in running.WORKS.values()} == set(TINY)


def tiny_soak(build, program, arguments, preload, *more):
    environment = {"LD_PRELOAD": str(preload)} if preload else {}
    done = subprocess.run([build / "bin" / program, *arguments.split(), *more], env=environment, capture_output=True,
                          timeout=cases.PATIENCE_S, check=True)  # fmt: skip
    return done.stdout, done.stderr


@pytest.mark.parametrize("program", TINY)
def test_each_program(build, library, tmp_path, program):
    for preload in (None, library):
        for _ in range(TRIES):
            lines, said = tiny_soak(
                build, program, TINY[program], preload, "--soak", "0.1", "--epoch-ms", "20", "--json"
            )
            report = json.loads(said.splitlines()[-1])
            if report["rounds"] > 1:
                break
        assert lines.startswith(HEADER)
        read = epochs.read(write(tmp_path, lines))
        assert 1 <= len(read) <= 5 and read.time_s[0] >= 0.02 and report["rounds"] > 1
        assert 0 < sum(read.ops) <= report["operations"] and report["operations"] % report["rounds"] in (0, 8)
        assert min(read.ops_per_s) > 0 and min(read.rss_kb) > 0
        assert read.rss_peak_kb == sorted(read.rss_peak_kb) and min(read.rss_peak_kb) >= read.rss_kb[0]
        plain = [json.loads(tiny_soak(build, program, TINY[program], preload, "--json")[0]) for _ in range(2)]
        assert plain[0]["hash"] == plain[1]["hash"] and "rounds" not in plain[0]


def test_system_calls_are_the_programs(build, tmp_path):
    """A mapping a block: mmap, mprotect and munmap a replacement, and no others. Without the counter the field is empty."""
    preload = build / "bin" / "tests" / "plugins" / "test-mapping-preload.so"
    lines, report = tiny_soak(build, "churn", "100 40 103 200 1", preload, "--soak", "0.2", "--epoch-ms", "50")
    read = epochs.read(write(tmp_path, lines))
    if "system_calls" not in read.counters:
        assert report.count(b"system calls are not counted") == 1
        pytest.skip("system calls cannot be counted here")
    for calls, ops in zip(read.counters["system_calls"], read.ops, strict=True):
        assert calls == 3 * ops
    quiet = epochs.read(write(tmp_path, tiny_soak(build, "churn", "100 40 103 200 1", None, "--soak", "0.2",
                                                  "--epoch-ms", "50")[0]))  # fmt: skip
    assert quiet.counters["system_calls"][-1] == 0


@pytest.mark.parametrize("words", [["--soak"], ["--soak", "0"], ["--soak", "nan"], ["--soak", "1", "--epoch-ms", "x"]])
def test_wrong_options(build, words):
    done = subprocess.run([build / "bin" / "churn", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "is not a number" in done.stderr.splitlines()[-1]
    done = subprocess.run([build / "bin" / "batch", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "unknown option --soak" in done.stderr


# --- hak soak -----------------------------------------------------------------------------------------


def hak(tree, build, *words, wait=True):
    variables = {"HAK_BUILD": str(build), "HAK_LIB": ""}
    if wait:
        done = forked.hak("soak", *words, cwd=tree, variables=variables)
        return done.stdout, done.stderr, done.returncode
    command = [sys.executable, "-m", "lab", "soak", *map(str, words)]
    return subprocess.Popen(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ | variables)  # fmt: skip


QUICK = ("--epoch", "0.02", "--bench", "mixed", "--seed", "3")


def test_a_soak_is_stored(tree, build, tmp_path):
    row_file = tmp_path / "rows.jsonl"
    for stem, more in (("mixed-hakmem-lean", ["--profile", "lean"]), ("mixed-glibc", ["--allocator", "glibc"])):
        said, errors, status = hak(tree, build, *QUICK, "--minutes", 0.02, "--out", tmp_path, "--json", row_file, *more)
        assert status == 0, errors
        assert "RSS: median" in said and "an hour" in said
        read = epochs.read(tmp_path / f"{stem}.csv")
        about = json.loads((tmp_path / f"{stem}.json").read_text())
        assert len(read) == about["epochs"] > 3 and about["ended"] == "complete" and about["seed"] == 3
        assert about["commit"] and about["machine"]["kernel"] and about["command"][0] == "random_mixed"
        row = rows.read([row_file])[-1]
        assert row.kind == "soak" and row.result["epochs"] + row.result["warm_up_epochs"] == len(read)
        assert row.result["curve_rss_kb"] == read.rss_kb and row.settings == about["settings"]
    assert [row.settings for row in rows.read([row_file])] == [{"HAKMEM_PROFILE": "lean"}, {}]
    before = (tmp_path / "mixed-glibc.csv").read_bytes()
    hak(tree, build, *QUICK, "--minutes", 0.005, "--out", tmp_path, "--allocator", "glibc")
    assert (tmp_path / "mixed-glibc.csv").read_bytes() == before and (tmp_path / "mixed-glibc-2.csv").exists()
    about_file = tmp_path / "mixed-hakmem-lean.json"
    about = json.loads(about_file.read_text())
    about_file.write_text(json.dumps(about | {"started": "2024-02-29T12:00:00+00:00"}))
    said, errors, status = hak(tree, build, "--analyze", *sorted(tmp_path.glob("*.csv")), "--json", row_file)
    assert status == 0 and "mixed-hakmem-lean" in said, errors
    stored, again = rows.read([row_file])[0], rows.read([row_file])[-1]
    assert again.result["curve_rss_kb"] == stored.result["curve_rss_kb"] and again.session == stored.session
    assert again.time.isoformat() == "2024-02-29T12:00:00+00:00", "it was not measured when it was analyzed"
    before = row_file.read_bytes()
    for lost in ("session", "started", "machine", "seed"):
        about_file.write_text(json.dumps({key: value for key, value in about.items() if key != lost}))
        with pytest.raises(ValueError, match="lean.json: not what hak soak writes beside its CSV"):
            verb._analyzed_row(about_file.with_suffix(".csv"), read, judge.analyze(read))
    said, errors, status = hak(tree, build, "--analyze", tmp_path / "mixed-glibc.csv", about_file.with_suffix(".csv"),
                               "--json", row_file)  # fmt: skip
    assert status == 2 and not said and errors.startswith("hak: mixed-hakmem-lean.json: not what"), errors
    assert row_file.read_bytes() == before, "all rows or none"


def wait_for_epochs(csv, count=10):
    cases.until(lambda: csv.exists() and csv.read_bytes().count(b"\n") > count)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_is_there_is_kept(tree, build, tmp_path, number):
    row_file, csv = tmp_path / "rows.jsonl", tmp_path / "mixed-hakmem.csv"
    running_soak = hak(tree, build, *QUICK, "--minutes", 5, "--out", tmp_path, "--json", row_file, "--warm-up", 10_000,
                       wait=False)  # fmt: skip
    wait_for_epochs(csv)
    running_soak.send_signal(number)
    said, errors = running_soak.communicate(timeout=cases.PATIENCE_S)
    assert running_soak.returncode == 130 and "RSS: median" in said and "stopped after" in errors, errors
    about = json.loads((tmp_path / "mixed-hakmem.json").read_text())
    assert about["ended"] == "stopped" and about["epochs"] == len(epochs.read(csv)) >= 10
    assert about["report"]["operations"] > 0, "the program ended by itself and reported"
    assert f"--warm-up 10000 leaves none of {about['epochs']} epochs: 5 are left out" in errors
    assert rows.read([row_file])[0].result["warm_up_epochs"] == 5, "the soak's length is not lost for one option"


@pytest.mark.usefixtures("hangups")
def test_the_terminal_is_closed(tree, build, tmp_path):
    """Then nothing can be said any more, and all is stored."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "lab", "soak", *QUICK, "--minutes", "5", "--out", str(tmp_path)]
    take = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
    )
    started = subprocess.Popen([sys.executable, "-c", take, *command, "--json", str(tmp_path / "rows.jsonl")], cwd=tree,
                               stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                               env=os.environ | {"HAK_BUILD": str(build), "HAK_LIB": ""})  # fmt: skip
    os.close(theirs)
    reader = threading.Thread(target=lambda: os.read(ours, 4096))
    reader.start()
    wait_for_epochs(tmp_path / "mixed-hakmem.csv")
    reader.join()
    os.close(ours)
    started.wait(cases.PATIENCE_S)
    about = json.loads((tmp_path / "mixed-hakmem.json").read_text())
    assert about["ended"] == "stopped" and about["report"]["operations"] > 0
    assert len(rows.read([tmp_path / "rows.jsonl"])) == 1


@pytest.mark.parametrize("handler, how", [(signal.SIG_IGN, "complete"), (signal.SIG_DFL, "stopped")])
def test_nohup(tmp_path, handler, how):
    build = stand_in(tmp_path, "trap 'exit 0' TERM; " + EPOCH + "sleep 1; echo 2 >$out")
    before = signal.signal(signal.SIGHUP, handler)
    told = signals_at_line(2, signal.SIGHUP, signal.SIGHUP)
    try:
        work = running.Soak("random_mixed 1 1 SEED", Allocator("a", None), build, 5, 1, 1, None, {}, told)
        ended = work.run()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert ended.how == how and not ended.problem, "told twice, which kills nothing"


def test_no_room_for_the_row(tree, build, tmp_path):
    said, errors, status = hak(tree, build, *QUICK, "--minutes", 0.02, "--out", tmp_path, "--json", "/dev/full")
    assert status == 1 and "RSS: median" in said and "--json: No space left on device; the CSV is kept" in errors
    assert len(epochs.read(tmp_path / "mixed-hakmem.csv")) > 3


def test_no_room_for_the_results(tree, build, tmp_path):
    command = [sys.executable, "-m", "lab", "soak", *QUICK, "--minutes", "0.02", "--out", tmp_path]
    variables = {"HAK_BUILD": str(build), "HAK_LIB": ""}
    done = subprocess.run(command, cwd=tree, env=os.environ | variables, capture_output=True, text=True, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))  # fmt: skip
    assert (done.returncode, done.stderr) == (1, f"hak: {tmp_path}/mixed-hakmem.json: File too large\n")
    assert list(tmp_path.iterdir()) == []


def stand_in(folder: pathlib.Path, text: str) -> str:
    """A build folder whose program is this shell script; "$out" is where its epochs go."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "random_mixed"
    program.write_text("#!/bin/sh\nfor last; do :; done; out=/proc/self/fd/$last\n" + text)
    program.chmod(0o755)
    return str(folder)


EPOCH = "echo names >$out; echo 1 >$out; "


def signals_at_line(number, *signals):
    """Takes a soak's lines. Sends these signals to this process once so many came."""
    lines = []

    def take(line):
        lines.append(line)
        for each in signals if len(lines) == number else ():
            os.kill(os.getpid(), each)

    return take


@pytest.mark.parametrize("text, library, says, kept", [
    (EPOCH + "exec sleep 100", None, "no epoch for 1 s: the program hangs", 1),
    (EPOCH + "kill -SEGV $$", None, "died of SIGSEGV", 1),
    (EPOCH + "echo no memory >&2; exit 1", None, "status 1: no memory", 1),
    # No exec: what a process maps cannot be read meanwhile.
    (EPOCH + "kill -STOP $$", "/nowhere/lib.so", "lib.so is not loaded", 1),
    ("exit 0", None, "", 0),
])  # fmt: skip
def test_how_a_soak_ends(tmp_path, text, library, says, kept):
    lines = []
    build = stand_in(tmp_path, text)
    work = running.Soak("random_mixed 1 1 SEED", Allocator("a", library), build, 5, 1, 1, None, {}, lines.append, 1)
    ended = work.run()
    assert says in ended.problem and ended.epochs == kept and len(lines) == 2 * kept
    assert ended.how == ("failed" if says else "complete")


def test_a_second_signal_kills(tmp_path):
    build = stand_in(tmp_path, "trap 'echo 2 >$out' TERM; " + EPOCH + "while :; do sleep 0.1; done")
    first, second = (signals_at_line(number, signal.SIGINT) for number in (2, 3))
    work = running.Soak("random_mixed 1 1 SEED", Allocator("a", None), build, 5, 1, 1, None, {},
                        lambda line: (first(line), second(line)))  # fmt: skip
    ended = work.run()
    assert ended.how == "stopped" and ended.epochs == 2
    with pytest.raises(KeyboardInterrupt):  # the handler of before is back
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


@pytest.mark.parametrize("words, says", [
    (["--bench", "startup"], "unknown benchmark 'startup'"),
    (["--minutes", "0"], "--minutes: 0 is not over 0"),
    (["--profile", "fast"], "unknown profile 'fast'"),
    (["--profile", "lean", "--allocator", "glibc"], "--profile is for hakmem"),
    (["--allocator", "nosuch"], "unknown allocator 'nosuch'"),
    (["--allocator", "x=/nowhere.so"], "no file /nowhere.so"),
    (["a.csv"], "files are for --analyze"),
    (["--analyze"], "--analyze needs a FILE"),
    (["--analyze", "a.csv", "--bench", "larson"], "--bench means nothing to --analyze"),
    (["--analyze", "/nowhere.csv"], "/nowhere.csv: No such file"),
    (["--pin", "900"], "is none of the CPUs"),
    (["--epoch", "inf"], "--epoch: inf is not from 0.01 to 86400"),
    (["--epoch", "nan"], "--epoch: nan is not"),
    (["--analyze", "--epoch", "0"], "--epoch: 0 is not"),
    (["--epoch", "100", "--minutes", "1"], "--epoch: 1 minutes are over before one of 100 s is"),
    (["--env", "HAKMEM_X=1"], "--env: HAKMEM_X is no option of hakmem"),
    (["--warm-up", "300"], "--warm-up: in 5 minutes there are no more than 300 epochs"),
])  # fmt: skip
def test_wrong_usage(tree, build, tmp_path, words, says):
    said, errors, status = hak(tree, build, *words, *([] if "--analyze" in words else ["--out", tmp_path]))
    assert status == 2 and says in errors and errors.count("\n") == 1 and not said
    assert not list(tmp_path.iterdir())


def test_analyze_says_what_is_wrong(tree, build, tmp_path):
    good = write(tmp_path, "time,rss\n" + "".join(f"{i},{1000 + 2 * i}\n" for i in range(1, 100)))
    said, errors, status = hak(tree, build, "--analyze", good)
    assert status == 0 and "grows: +7.031 MiB" in said and "as ps prints it" in said, errors
    _, errors, status = hak(tree, build, "--analyze", good, "--json", tmp_path / "rows.jsonl")
    assert status == 2 and "a.json is not beside a.csv" in errors
    _, errors, status = hak(tree, build, "--analyze", good, "--warm-up", 99)
    assert status == 2 and "of 99 epochs none is left" in errors
    _, errors, status = hak(tree, build, "--analyze", write(tmp_path, "time,rss\n1,2\n2,?\n"))
    assert status == 2 and "a.csv:3: rss: '?' is not a number" in errors
