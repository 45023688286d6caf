"""hak record, on programs that do what programs do to a library inside them."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import forked
import numpy
import pytest
from made_programs import HEAD, PROGRAMS, SITES

from lab.judge import allocations
from lab.run.allocators import ROOT
from lab.store import trace


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name, source in PROGRAMS.items():
        (folder / f"{name}.c").write_text(HEAD + source)
        subprocess.run(["cc", "-O1", "-fno-builtin", "-w", "-pthread", "-o", name, f"{name}.c"], cwd=folder, check=True)
    return folder


@pytest.fixture
def record(build, tmp_path):
    """record(WORD...) is hak record --out tmp_path/a.trace --force, or with the options given: an object with returncode,
    stdout, stderr."""

    def run(*words, variables=None, options=("--out", tmp_path / "a.trace", "--force"), **how):
        return forked.hak("record", *options, *words, variables={"HAK_BUILD": str(build)} | (variables or {}), **how)

    return run


@pytest.fixture
def recorded(build, tmp_path):
    """recorded(): the events and facts of tmp_path/a.trace, or of another file."""

    def read(path=None):
        with trace.Trace(path or tmp_path / "a.trace", trace.library_in(build)) as found:
            return found.events(), found.facts, found.sites()

    return read


def peak_of(events, without_calloc=False):
    """Live bytes at their peak; without the blocks that libc made for threads, by calloc."""
    if without_calloc:
        hidden = numpy.unique(events["object"][events["kind"] == allocations.CALLOC])
        events = events[~numpy.isin(events["object"], hidden)]
    return allocations.tally([events]).live_peak


@pytest.mark.parametrize("beneath", ["glibc", "hakmem"])
def test_live_bytes_are_what_the_program_counts(record, recorded, made, library, beneath):
    variables = {"LD_PRELOAD": str(library)} if beneath == "hakmem" else {}
    done = record("--", made / "family", variables=variables)
    events, facts, sites = recorded()
    assert (done.returncode, facts.problem, facts.unknown_frees) == (0, "", 0), done.stderr
    assert peak_of(events) == int(done.stdout) and allocations.tally([events]).live == 0
    counts = dict(zip(allocations.KINDS, allocations.tally([events]).by_kind, strict=True))
    assert counts == {"malloc": 4, "calloc": 1, "aligned": 4, "free": 9, "realloc": 2}
    aligned = events[events["kind"] == allocations.ALIGNED]
    assert aligned["alignment_log2"].tolist() == [12, 6, 8, 12]
    assert len(sites) == 3 and {site.module for site in sites} == {"family"} and sites[0].build_id
    assert peak_of(events[1:]) != int(done.stdout)  # the control


def test_hand_overs(record, recorded, made):
    done = record("--", made / "handover")
    events, facts, _ = recorded()
    assert (done.returncode, facts.problem, facts.unknown_frees) == (0, "", 0)
    # The program counts before and after its calls, from four threads: at most a block each is seen differently.
    assert abs(peak_of(events, without_calloc=True) - int(done.stdout)) <= 4 * 3016
    handed = events[(events["size"] < 3016) & (events["kind"] == allocations.FREE)]
    assert len(handed) >= 20000 and numpy.count_nonzero(handed["flags"] & allocations.REMOTE) == 20000
    assert allocations.tally([events]).threads == 5
    assert not numpy.count_nonzero(events["flags"] & allocations.IMPLIED)  # per block the order is right
    state = {}
    for kind, found in zip(events["kind"].tolist(), events["object"].tolist(), strict=True):
        assert state.get(found) == (None if kind < allocations.FREE else "live")
        state[found] = "dead" if kind == allocations.FREE else "live"


@pytest.mark.parametrize(("how", "status", "reason", "events"), [
    ("exit", 0, trace.END_EXIT, 2000), ("abort", -signal.SIGABRT, trace.END_SIGNAL, 2000),
    ("fault", -signal.SIGSEGV, trace.END_SIGNAL, 2000), ("term", -signal.SIGTERM, trace.END_SIGNAL, 2000),
    ("_exit", 3, trace.END_EXIT, 2000), ("quick_exit", 4, trace.END_EXIT, 2000), ("exec", 0, trace.END_EXIT, 4000),
    ("execle", 0, trace.END_EXIT, 4000), ("no-exec", 5, trace.END_EXIT, 3000), ("kill", -signal.SIGKILL, 0, None)])  # fmt: skip
def test_ends(record, recorded, made, how, status, reason, events):
    done = record("--", made / "ends", how)
    found, facts, _ = recorded()
    assert (done.returncode, facts.end_reason, facts.damage) == (status, reason, "")
    if events:
        assert len(found) == events
    else:
        assert 10000 < len(found) < 62000 and "has no end mark" in done.stderr  # whole chunks only


def test_children(record, recorded, made, tmp_path):
    for words, traces in (((), 0), (("--children",), 3)):
        assert record(*words, "--", made / "processes").returncode == 0
        assert len(recorded()[0]) == 20 and recorded()[1].problem == ""
        others = sorted(tmp_path.glob("a.trace.*"))
        assert len(others) == traces
        assert [len(recorded(path)[0]) for path in others] == [1400] * traces
    record("--", made / "ends", "exit")
    assert not list(tmp_path.glob("a.trace.*"))  # those of an earlier recording


def test_a_crowd_of_threads(record, recorded, made):
    assert record("--", made / "crowd").returncode == 0
    events, facts, _ = recorded()
    small = events[(events["size"] >= 100) & (events["size"] < 150)]
    assert len(numpy.unique(small["thread"])) == 1800 and len(small) == 1800 * 100
    assert facts.problem == "" and not numpy.count_nonzero(events["flags"])


def test_descriptors_of_the_program_are_its_own(record, recorded, made, tmp_path):
    assert record("--", made / "closes", tmp_path / "mine").returncode == 0
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert len(recorded()[0]) == 200000 and recorded()[1].problem == ""


def test_limits(record, recorded, made, build, tmp_path):
    churn = [build / "bin" / "random_mixed", "2000000"]
    done = record("--limit", "1", "--", *churn)
    assert done.returncode == 0 and "random_mixed 2000000" in done.stdout
    assert done.stderr.count("reached its limit of 1 MB: recording stops, the program goes on") == 1
    events, facts, _ = recorded()
    assert facts.end_reason == trace.END_LIMIT and facts.file_bytes <= 1 << 20 and len(events) > 100_000
    done = record("--", *churn, preexec_fn=lambda: __import__("resource").setrlimit(1, (300_000, 300_000)))
    assert done.returncode == 0 and recorded()[1].end_reason == trace.END_LIMIT  # and not SIGXFSZ
    assert (tmp_path / "a.trace").stat().st_size <= 300_000


def test_a_full_disk(record, recorded, build, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no right to mount a small disk")
    try:
        done = record("--out", disk / "b.trace", "--", build / "bin" / "random_mixed", "1000000")
        events, facts, _ = recorded(disk / "b.trace")
    finally:
        subprocess.run(["umount", disk], check=True)
    assert done.returncode == 0 and "random_mixed 1000000" in done.stdout
    assert done.stderr.count("recording stops, the program goes on") == 1
    assert facts.end_reason in (trace.END_WRITE, 0) and not facts.damage and len(events) > 100_000
    assert "ends early: it could not be written (No space left" in done.stderr or "has no end mark" in done.stderr


def test_the_program_keeps_its_input_output_and_status(record, recorded, tmp_path):
    done = record("--", "sh", "-c", "cat; echo err >&2; exit 7", input="some\ntext\n")
    assert (done.returncode, done.stdout) == (7, "some\ntext\n")
    assert done.stderr.splitlines()[0] == "err"
    assert re.search(r"a\.trace: \S+, [0-9,]+ events, [0-9.]+ MB$", done.stderr.splitlines()[1])
    assert record("--", "nowhere-at-all").returncode == 127
    (tmp_path / "a.trace").write_text("a letter")
    done = record("--", "true")
    assert done.returncode == 2 and "is no trace; it is not overwritten" in done.stderr
    assert (tmp_path / "a.trace").read_text() == "a letter"


BEFORE_HANDLERS = """
fork = os.fork
def interrupted():
    child = fork()
    if child:
        os.kill(os.getpid(), signal.SIGTERM)
    return child
os.fork = interrupted
status = foreground.run(shutil.which("sleep"), ["sleep", "10"], os.environ)[1]
assert os.WTERMSIG(status) == signal.SIGTERM, status
"""
AFTER_THE_END = """
waitpid, heard = os.waitpid, []
def interrupted(*words):
    found = waitpid(*words)
    signal.raise_signal(signal.SIGTERM)
    return found
signal.signal(signal.SIGTERM, lambda *_: heard.append("ours"))
os.waitpid = interrupted
assert foreground.run(shutil.which("true"), ["true"], os.environ)[1] == 0
assert heard == ["ours"], heard
"""


@pytest.mark.parametrize("script", [BEFORE_HANDLERS, AFTER_THE_END])
def test_a_signal_beside_the_program(script):
    """Before it can be passed on it waits; when the program has ended it is passed on to nobody."""
    script = "import os, shutil, signal\nfrom lab.run import foreground\n" + script
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_status_of_what_cannot_run(record, tmp_path):
    (tmp_path / "letter").write_text("to a friend")
    for word, status in (("executable-x", 127), (tmp_path / "executable-x", 127), (tmp_path / "letter", 126)):
        done = record("--", word)
        assert done.returncode == status and done.stderr.startswith(f"hak: record: {word}: "), done.stderr
    assert not (tmp_path / "a.trace").exists()


def test_no_recording_is_lost(record, recorded, tmp_path):
    def traces():
        return sorted(path.name for path in tmp_path.glob("*.trace*"))

    for expected in (["true.trace"], ["true-2.trace", "true.trace"]):
        assert record("--", "true", options=(), cwd=tmp_path).returncode == 0
        assert traces() == expected
    (tmp_path / "true-3.trace.77").write_bytes((tmp_path / "true.trace").read_bytes())
    assert record("--", "true", options=(), cwd=tmp_path).returncode == 0 and (tmp_path / "true-4.trace").exists()
    first = (tmp_path / "true.trace").read_bytes()
    assert first
    for name, words in (("true.trace", ["perl", "-e", "1"]), ("true-3.trace", ["true"])):
        done = record("--out", tmp_path / name, "--", *words, options=())
        assert done.returncode == 2 and "is there and is not overwritten; --force does that" in done.stderr
    assert (tmp_path / "true.trace").read_bytes() == first and (tmp_path / "true-3.trace.77").exists()
    # The control: with --force both go.
    assert record("--out", tmp_path / "true-3.trace", "--force", "--", "true", options=()).returncode == 0
    assert (tmp_path / "true-3.trace").exists() and not (tmp_path / "true-3.trace.77").exists()


def test_a_trace_that_the_program_removes(record, tmp_path):
    folder = tmp_path / "there"
    for remove in ("rm there/b.trace", "rm -r there"):
        folder.mkdir(exist_ok=True)
        done = record("--out", folder / "b.trace", "--", "sh", "-c", remove, options=(), cwd=tmp_path)
        assert done.returncode == 0 and "Traceback" not in done.stderr
        assert f"hak: {folder / 'b.trace'} is gone: CMD, or someone else, removed it" in done.stderr


def test_operators_of_cxx(record, recorded, library, tmp_path):
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler")
    (tmp_path / "sites.cc").write_text(SITES)
    subprocess.run(["c++", "-std=c++17", "-O0", "-o", "sites", "sites.cc"], cwd=tmp_path, check=True)
    for beneath in ({}, {"LD_PRELOAD": str(library)}):
        done = record("--", tmp_path / "sites", variables=beneath)
        events, facts, sites = recorded()
        assert (done.returncode, facts.problem) == (0, ""), done.stderr
        large = events[(events["size"] >= 65536) & (events["size"] != 72704)]  # libstdc++'s own reserve
        assert len(large) == 12 and numpy.count_nonzero(large["kind"] == allocations.FREE) == 6
        ours = large[large["site"] != allocations.NO_SITE]
        assert {sites[row].module for row in ours["site"]} == {"sites"} and len(set(ours["site"])) == 6
        assert sorted(ours["alignment_log2"][ours["kind"] == allocations.ALIGNED].tolist()) == [12, 13]


def test_static_programs_are_told(record, made, tmp_path):
    (tmp_path / "x.c").write_text("int main(void) { return 0; }")
    subprocess.run(["cc", "-static", "-o", "x", "x.c"], cwd=tmp_path, check=True)
    done = record("--", tmp_path / "x")
    assert done.returncode == 0 and "nothing was recorded" in done.stderr and "statically linked" in done.stderr


def test_real_programs(record, recorded, tmp_path):
    source = tmp_path / "a.cc"
    source.write_text('#include <string>\nint main() { return (int)std::string("x").size() - 1; }\n')
    ran = 0
    for words in (["/usr/bin/python3", "-c", "print(sum(map(len, [str(i) for i in range(20000)])))"],
                  ["perl", "-e", "my %h; $h{$_} = $_ x 3 for 1..5000; print scalar keys %h"],
                  ["sqlite3", ":memory:", "create table t(a); insert into t values(1); select a from t"],
                  ["g++", "-fsyntax-only", source]):  # fmt: skip
        if not shutil.which(words[0]):
            continue
        plain = subprocess.run(words, capture_output=True, text=True, check=True)
        done = record("--children", "--", *words)
        assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
        events = [recorded(path)[:2] for path in (tmp_path / "a.trace", *tmp_path.glob("a.trace.*"))]
        assert all(facts.problem == "" for _, facts in events) and sum(len(found) for found, _ in events) > 100
        ran += 1
    assert ran and pathlib.Path("/usr/bin/python3").exists()
