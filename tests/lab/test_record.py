"""hak record, on programs that do what programs do to a library inside them."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import types

import numpy
import pytest

from lab.judge import allocations
from lab.store import trace

# What is in front of every program: bytes it has live, by its own count. It prints the peak with write.
HEAD = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static _Atomic long live, peak;
static void *made(void *block, long size) {
  long now = atomic_fetch_add(&live, size) + size;
  for (long seen = peak; now > seen && !atomic_compare_exchange_weak(&peak, &seen, now);) {}
  return block;
}
static void churn(int count) {
  for (int i = 0; i < count; i++) {
    void *volatile block = malloc(100 + i % 50);
    free(block);
  }
}
static void say(long number) {
  char text[32];
  (void)!write(1, text, snprintf(text, sizeof text, "%ld\n", number));
}
"""
PROGRAMS = {
    # One thread, all of the family; 3 MiB live at the most.
    "family": r"""
int main(void) {
  void *block[9], *other;
  block[0] = made(malloc(1000), 1000);
  block[1] = made(calloc(10, 30), 300);
  block[2] = made(realloc(NULL, 77), 77);
  block[2] = realloc(block[2], 200000); made(0, 200000 - 77);
  block[3] = made(aligned_alloc(4096, 8192), 8192);
  block[4] = made(memalign(64, 640), 640);
  block[5] = !posix_memalign(&other, 256, 70000) ? made(other, 70000) : 0;
  block[6] = made(reallocarray(NULL, 5, 5), 25);
  block[7] = made(valloc(10), 10);
  block[8] = made(malloc(3 << 20), 3 << 20);
  if (realloc(block[0], (size_t)1 << 62) || malloc((size_t)1 << 62) || malloc_usable_size(block[0]) < 1000) return 9;
  free(block[8]); made(0, -(3 << 20));
  block[1] = realloc(block[1], 10); made(0, 10 - 300);
  for (int i = 0; i < 8; i++) free(block[i]);
  say(peak);
}""",
    # Two threads make, two free what they made, through a ring; each frees its own half of the rest.
    "handover": r"""
enum { RING = 256, COUNT = 20000 };
static void *_Atomic ring[RING];
static long size_of(int i) { return 16 + i * 7 % 3000; }
static void *maker(void *first) {
  for (int i = (int)(long)first; i < COUNT; i += 2) {
    void *block = made(malloc((size_t)size_of(i)), size_of(i));
    while (atomic_load(&ring[i % RING])) sched_yield();
    atomic_store(&ring[i % RING], block);
  }
  return NULL;
}
static void *taker(void *first) {
  for (int i = (int)(long)first; i < COUNT; i += 2) {
    void *block;
    while (!(block = atomic_load(&ring[i % RING]))) sched_yield();
    made(0, -size_of(i));
    free(block);
    atomic_store(&ring[i % RING], NULL);
  }
  return NULL;
}
int main(void) {
  pthread_t threads[4];
  void *large = made(malloc(2 << 20), 2 << 20);
  for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i < 2 ? maker : taker, (void *)(i % 2));
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  free(large);
  say(peak);
}""",
    "ends": r"""
int main(int count, char **words) {
  const char *how = words[count - 1];
  churn(1000);
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "fault")) *(volatile int *)8 = 1;
  if (!strcmp(how, "term")) raise(SIGTERM);
  if (!strcmp(how, "_exit")) _exit(3);
  if (!strcmp(how, "quick_exit")) quick_exit(4);
  if (!strcmp(how, "kill")) { churn(30000); raise(SIGKILL); }
  if (!strcmp(how, "exec")) execl(words[0], words[0], "again", (char *)NULL);
  if (!strcmp(how, "execle")) execle(words[0], words[0], "again", (char *)NULL, environ);
  if (!strcmp(how, "no-exec")) { execlp("/nowhere/x", "x", (char *)NULL); churn(500); return 5; }
  return 0;
}""",
    "processes": r"""
int main(void) {
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    if (!child) { churn(700); exit(0); }
    waitpid(child, NULL, 0);
  }
  for (int i = 0; i < 3; i++) {
    pid_t child = vfork();
    if (!child) { execl("/nowhere/x", "x", (char *)NULL); _exit(1); }
    waitpid(child, NULL, 0);
  }
  churn(10);
}""",
    "crowd": r"""
static void *body(void *unused) { churn(50); return unused; }
int main(void) {
  pthread_t threads[600];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 600; i++) pthread_create(&threads[i], NULL, body, NULL);
    for (int i = 0; i < 600; i++) pthread_join(threads[i], NULL);
  }
}""",
    # A daemon's habit: closes all it did not open, and opens files of its own at every number.
    "closes": r"""
int main(int count, char **words) {
  (void)count;
  close_range(3, ~0u, 0);
  int fd = -1;
  for (int i = 0; i < 600; i++) fd = open(words[1], O_RDWR | O_CREAT, 0644);
  (void)!write(fd, "mine", 4);
  churn(100000);
}""",
}
SITES = r"""
#include <cstdlib>
#include <new>
static void *keep[8];
__attribute__((noinline)) void first() { keep[0] = ::operator new(100000); }
__attribute__((noinline)) void second() { keep[1] = new char[100000]; keep[2] = new (std::align_val_t(4096)) char[100000]; }
struct alignas(8192) Wide { char byte[8192 * 20]; };
int main(int, char **words) {
  first(); second();
  keep[3] = new (std::nothrow) char[100000];
  Wide *wide = new Wide; delete wide;
  try { keep[4] = ::operator new((size_t)1 << 60 | (size_t)(words[0] == nullptr)); } catch (std::bad_alloc &) { keep[4] = malloc(70000); }
  ::operator delete(keep[0]); delete[] (char *)keep[1]; ::operator delete[](keep[2], std::align_val_t(4096));
  delete[] (char *)keep[3]; free(keep[4]);
}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name, source in PROGRAMS.items():
        (folder / f"{name}.c").write_text(HEAD + source)
        subprocess.run(["cc", "-O1", "-fno-builtin", "-w", "-pthread", "-o", name, f"{name}.c"], cwd=folder, check=True)
    return folder


@pytest.fixture
def record(build, tree, tmp_path):
    """record(WORD...) is hak record --out tmp_path/a.trace --force, or with the options given: an object with returncode,
    stdout, stderr."""
    environment = dict(os.environ) | {"HAK_BUILD": str(build), "PYTHONPATH": str(tree)}

    def run(*words, variables=None, options=("--out", tmp_path / "a.trace", "--force"), **how):
        command = [sys.executable, "-B", "-m", "lab", "record", *options, *words]
        done = subprocess.run(list(map(str, command)), env=environment | (variables or {}), capture_output=True, text=True,
                              timeout=60, check=False, **how)  # fmt: skip
        return types.SimpleNamespace(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)

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
