"""hak replay, and the plans that bin/replay works by."""

import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import types

import made_trace as made
import numpy
import pytest
import typer
from made_trace import CALLOC, FREE, GAVE, MALLOC, TOOK, Event

from lab.judge import allocations
from lab.run import allocators, replay
from lab.store import rows, trace
from lab.verbs import replay as replay_verb

PLAN_HEAD = numpy.dtype([("mark", "u8"), ("version", "u4"), ("threads", "u4"), ("records", "u8"), ("steps", "u8"),
                         ("slots", "u4"), ("samples", "u4"), ("live_peak", "u8"), ("live_end", "u8"), ("unit_bytes", "u8")])  # fmt: skip
FREE_STEP, REALLOC_STEP, SYNC, SAMPLE, SPAWN = range(3, 8)
WINDOW, STRIDE = 4096, 512


@pytest.fixture
def hak(build, tree, library, tmp_path):
    """hak(WORD...) is hak replay: an object with returncode, stdout, stderr."""
    environment = dict(os.environ) | {"HAK_BUILD": str(build), "HAK_LIB": str(library), "PYTHONPATH": str(tree)}

    def run(*words, verb="replay"):
        command = [sys.executable, "-B", "-m", "lab", verb, *words]
        done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=100,
                              check=False)  # fmt: skip
        return types.SimpleNamespace(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)

    return run


def crossing(count, threads, seed=1, largest=4000):
    """Threads that make blocks, resize them and free each other's: a trace."""
    draw, order, live, lanes = random.Random(seed), 0, [], [[] for _ in range(8)]
    for number in range(count):
        thread = 1 + draw.randrange(min(threads, 1 + number * threads // count * 2 + 1))
        order += 1
        lane = lanes[thread % 8]
        if live and draw.random() < 0.42:
            address = live.pop(draw.randrange(len(live)))
            lane.append(Event(FREE, order, thread, address))
        elif live and draw.random() < 0.1:
            address = live[draw.randrange(len(live))]
            lane += [
                Event(TOOK, order, thread, address),
                Event(GAVE, order + 1, thread, address, draw.randrange(largest)),
            ]
            order += 1
        else:
            address = (1 + number) << 32
            kind = CALLOC if number % 9 == 0 else MALLOC
            lane.append(Event(kind, order, thread, address, draw.randrange(largest)))
            live.append(address)
    parts = [lane[at : at + 1000] for lane in lanes for at in range(0, len(lane), 1000)]
    return (
        made.start()
        + b"".join(made.events(part, part[0].thread % 8) for part in parts)
        + made.end(sum(map(len, parts)))
    )


class Plan:
    """What plan.h says, read by itself."""

    def __init__(self, path):
        data = path.read_bytes()
        self.head = numpy.frombuffer(data, PLAN_HEAD, 1)[0]
        at = PLAN_HEAD.itemsize
        threads = numpy.frombuffer(data, [("records", "u8"), ("begin", "u8")], self.head["threads"], at)
        records = numpy.frombuffer(data, [("what", "u8"), ("slot", "u4"), ("turn", "u4")], offset=at + threads.nbytes)
        assert len(records) == self.head["records"] == threads["records"].sum()
        self.begin = threads["begin"].tolist()
        ends = numpy.cumsum(threads["records"]).tolist()
        decoded = [(what >> 48 & 0xFF, what & (1 << 48) - 1, slot, turn) for what, slot, turn in records.tolist()]
        self.rows = [decoded[end - count : end] for end, count in zip(ends, threads["records"].tolist(), strict=True)]


def play(plan, seed):
    """Does the plan with a scheduler that picks any thread that need not wait. The most that a step was ahead of
    another thread's next one, as published; or None: all threads wait."""
    draw, at, turns, held, farthest = random.Random(seed), [0] * len(plan.rows), {}, set(), 0
    published = [plan.begin[0]] + [None] * (len(plan.rows) - 1)
    started, running = 1, [0]

    def slowest():
        waiting = [plan.begin[started]] if started < len(plan.rows) else []
        return min([published[thread] for thread in running] + waiting)

    while running:
        for thread in draw.sample(running, len(running)):
            kind, argument, slot, turn = plan.rows[thread][at[thread]]
            if kind == SYNC:
                published[thread] = argument
                ahead = argument - slowest()
                if ahead > (WINDOW // 2 if thread in held else WINDOW):
                    held.add(thread)
                    continue
                held.discard(thread)
                farthest = max(farthest, ahead)
            elif kind == SPAWN:
                if started != argument:
                    continue
                published[argument] = plan.begin[argument]
                running.append(argument)
                started += 1
            elif kind != SAMPLE:
                if turns.get(slot, 0) != turn:
                    continue
                turns[slot] = turn + 1
            at[thread] += 1
            if at[thread] == len(plan.rows[thread]):
                running.remove(thread)
            break
        else:
            return None
    assert started == len(plan.rows)
    return farthest


@pytest.fixture
def plan_of(build, tmp_path):
    def make(data):
        (tmp_path / "a.trace").write_bytes(data)
        with trace.Trace(tmp_path / "a.trace", trace.library_in(build)) as found:
            found.write_plan(tmp_path / "plan")
        return Plan(tmp_path / "plan")

    return make


@pytest.mark.parametrize("threads", [2, 5, 40])
def test_no_schedule_ends_in_a_deadlock(plan_of, threads):
    plan = plan_of(crossing(6000, threads, threads, largest=40_000))
    assert len(plan.rows) == threads and any(kind == SYNC for row in plan.rows for kind, *_ in row)
    for seed in range(3):
        farthest = play(plan, seed)
        assert farthest is not None and farthest <= WINDOW
    # The control: without the step that makes a block, those that use it wait forever.
    used = {slot for row in plan.rows for kind, _, slot, turn in row if kind < SYNC and turn == 1}
    lost = next((row, at) for row in plan.rows for at, (kind, _, slot, turn) in enumerate(row)
                if kind < SYNC and turn == 0 and slot in used)  # fmt: skip
    del lost[0][lost[1]]
    assert play(plan, 1) is None


def test_plan(plan_of):
    plan = plan_of(crossing(30_000, 6, largest=300))
    unit = plan.head["unit_bytes"]
    assert unit == 256 and plan.head["steps"] == 30_000 and plan.head["samples"] == 60
    spawned = sorted(argument for row in plan.rows for kind, argument, *_ in row if kind == SPAWN)
    assert spawned == [1, 2, 3, 4, 5] == sorted(range(1, plan.head["threads"]))
    for begin, row in zip(plan.begin, plan.rows, strict=True):  # P1, with the positions that steps have at least
        last, position = begin, begin
        for kind, argument, *_ in row:
            if kind == SYNC:
                assert argument >= position
                last = position = argument
            elif kind < SYNC:
                assert position - last < STRIDE
                position += 1 + (0 if kind == FREE_STEP else argument // int(unit))
    alone = plan_of(crossing(5000, 1))
    assert {kind for row in alone.rows for kind, *_ in row} <= {0, 1, FREE_STEP, REALLOC_STEP, SAMPLE}
    assert plan_of(crossing(3000, 2, largest=1 << 25)).head["unit_bytes"] == 4096


def test_replay_measures_and_stores(hak, tmp_path):
    data = crossing(40_000, 4)
    (tmp_path / "a.trace").write_bytes(data)
    done = hak(tmp_path / "a.trace", "--against", "glibc", "--runs", 2, "--json", tmp_path / "rows", "--csv",
               tmp_path / "s.csv")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "peak live" in done.stdout and "hakmem is" in done.stdout
    stored = rows.read([tmp_path / "rows"])
    assert [(row.allocator, row.run, row.kind, row.work) for row in stored] == [
        (name, run, "replay", "a.trace") for run in (1, 2) for name in ("hakmem", "glibc")]  # fmt: skip
    assert len({row.result["hash"] for row in stored}) == 1
    with open(tmp_path / "s.csv", encoding="utf-8") as file:
        samples = list(csv.DictReader(file))
    for row in stored:
        own = [sample for sample in samples if (sample["allocator"], int(sample["run"])) == (row.allocator, row.run)]
        assert len(own) == 80 and int(own[0]["step"]) == 0 and 0 < int(own[40]["step"]) < 40_000
        # Threads keep together: 256 bytes times 4096 positions, and what the samples' threads are about to count.
        assert row.result["live_sampled_kb"] <= row.result["live_peak_kb"] + 1024 + 4 * 4
        assert row.result["live_sampled_kb"] >= 0.8 * row.result["live_peak_kb"]
        assert (
            row.result["heap_peak_kb"]
            == row.result["rss_peak_kb"] - row.result["tables_kb"]
            > row.result["live_peak_kb"]
        )
        assert row.result["peak_over_live"] > 1 and row.result["threads"] == 4 and row.result["operations"] == 40_000
        assert row.result["live_end_kb"] == pytest.approx(int(own[-1]["live_kb"]), abs=2048)
        # The row has the same points as the file, so that a report can draw them.
        assert row.result["curve_progress"] == [int(sample["step"]) / 40_000 for sample in own]
        assert row.result["curve_live_kb"] == [int(sample["live_kb"]) for sample in own]
        assert row.result["curve_rss_kb"] == [int(sample["rss_kb"]) for sample in own]
        assert max(row.result["curve_rss_kb"]) <= row.result["heap_peak_kb"]


class Hashes(replay.Replays):
    """Replays of allocators whose hashes are given: one for each run."""

    def __init__(self, **hashes):
        self.hashes = {name: list(found) for name, found in hashes.items()}
        found = [allocators.Allocator(name, None) for name in hashes]
        super().__init__(None, "", found, 2, None, 1, replay.open_outcome("made", "hakmem", found))
        self.run()

    def _once(self, allocator):
        return {"hash": self.hashes[allocator.name].pop(0)}, [], ""

    def said(self):
        return {series.name: series.problem for series in self.outcome.series}


def test_whose_hash_counts():
    made = Hashes(hakmem="aaa", broken="bbb", glibc="aaa")
    assert made.said() == {"hakmem": "", "glibc": "", "broken": "wrong work: hash b, not a"}
    assert [len(series.results) for series in made.outcome.series] == [2, 0, 2]
    # Without glibc, whoever is named first and whoever runs first, neither of two is called wrong.
    for order in (("hakmem", "broken", "other"), ("broken", "other", "hakmem")):
        hashes = {"hakmem": "aaa", "broken": "bbb", "other": "aaa"}
        said = Hashes(**{name: hashes[name] for name in order}).said()
        assert said["hakmem"].startswith("hashes differ: ") and said["broken"].startswith("hashes differ: ")
    assert Hashes(hakmem="aaa", broken="aab").said() == dict.fromkeys(("hakmem", "broken"),
                                                                      "hashes differ: hakmem a, broken b")  # fmt: skip
    assert set(Hashes(hakmem="aaa", other="aaa").said().values()) == {""}


def test_a_wrong_allocator_is_called_wrong(hak, plugins, tmp_path):
    (tmp_path / "a.trace").write_bytes(crossing(20_000, 1))
    mutant = plugins / "test-mutant-preload.so"
    done = hak(tmp_path / "a.trace", "--against", f"glibc,mutant={mutant},absent=/nowhere.so", "--runs", 1)
    assert done.returncode == 1
    assert [line.split(":")[1].strip() for line in done.stdout.splitlines() if line.startswith("  mutant:")] in (
        ["wrong work"], ["died of SIGSEGV"], ["died of SIGABRT"])  # fmt: skip
    assert "absent: no file /nowhere.so" in done.stdout and "  hakmem:" not in done.stdout


def test_damaged_traces_are_replayed_up_to_the_damage(hak, tmp_path):
    data = crossing(30_000, 3)
    path = tmp_path / "a.trace"
    path.write_bytes(data[: len(data) // 2])
    done = hak(path, "--against", "glibc", "--runs", 1)
    assert done.returncode == 0
    assert f"{path} is damaged at byte " in done.stderr and "bytes before that are used" in done.stderr
    assert "a.trace: made, 1" in done.stdout  # 1x,xxx events
    path.write_bytes(data[:500])
    done = hak(path, "--info")
    assert done.returncode == 0 and "is damaged at byte 152" in done.stderr
    assert hak(path, "--against", "glibc").stderr.endswith("has no events\n")
    path.write_text("a letter to a friend")
    done = hak(path)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr == f"hak: {path} is no trace of hak record, or " \
        "damaged at byte 0\n"  # fmt: skip
    assert hak(tmp_path / "absent").returncode == 2


def test_what_does_not_fit_is_refused(hak, tmp_path):
    path = tmp_path / "a.trace"
    path.write_bytes(made.trace([Event(MALLOC, 1, 1, 0x1000, 1 << 46)]))
    done = hak(path, "--against", "glibc", "--runs", 1)
    assert done.returncode == 2 and "MiB, and" in done.stderr and "are available" in done.stderr


def test_no_file_is_overwritten(hak, tmp_path):
    path, kept = tmp_path / "a.trace", tmp_path / "s.csv"
    path.write_bytes(crossing(2000, 1))
    kept.write_text("mine")
    done = hak(path, "--against", "glibc", "--runs", 1, "--csv", kept)
    assert (done.returncode, done.stderr) == (2, f"hak: --csv: {kept} is there; it is not overwritten\n")
    assert kept.read_text() == "mine"
    kept.unlink()
    assert hak(path, "--against", "glibc", "--runs", 1, "--csv", kept).returncode == 0
    assert kept.read_text().count("\n") == 1 + 2 * (2000 // 500)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(("option", "what"), [("--json", "rows"), ("--csv", "samples")])
def test_a_full_disk_loses_no_table(hak, tmp_path, option, what):
    path = tmp_path / "a.trace"
    path.write_bytes(crossing(2000, 1))
    done = hak(path, "--against", "glibc", "--runs", 2, option, "/dev/full")
    assert done.returncode == 1 and "hakmem is" in done.stdout and "[2 runs" in done.stdout
    assert done.stderr == f"hak: {what} are no longer stored: No space left on device\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_an_early_end_shows_what_is_known(build, tree, library, tmp_path, number):
    (tmp_path / "a.trace").write_bytes(crossing(5000, 1))
    environment = dict(os.environ) | {"HAK_BUILD": str(build), "HAK_LIB": str(library), "PYTHONPATH": str(tree),
                                      "TMPDIR": str(tmp_path)}  # fmt: skip
    words = ["replay", "a.trace", "--against", "glibc", "--runs", "100000", "--json", "rows"]
    with subprocess.Popen([sys.executable, "-B", "-m", "lab", *words], env=environment, cwd=tmp_path, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:  # fmt: skip
        until = time.monotonic() + 60
        while running.poll() is None and time.monotonic() < until:
            if (tmp_path / "rows").exists() and (tmp_path / "rows").read_text().count("\n") >= 4:
                break
            time.sleep(0.02)
        running.send_signal(number)
        said, complaints = running.communicate(timeout=60)
    assert running.returncode == 130 and "hakmem is" in said, complaints
    assert complaints == "hak: stopped; what was measured until then is above\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.trace", "rows"]  # no plan, no links


def test_too_little_memory_is_a_sentence(build, tmp_path, monkeypatch, capsys):
    path = tmp_path / "a.trace"
    path.write_bytes(crossing(2000, 1))
    monkeypatch.setenv("HAK_BUILD", str(build))
    replay_verb.run(path, info=True)
    assert "peak live" in capsys.readouterr().out
    monkeypatch.setattr(trace._loaded(str(trace.library_in(build))), "trace_is_short_of_memory", lambda _: True)
    with pytest.raises(typer.Exit) as ended:
        replay_verb.run(path, info=True)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == f"hak: {path}: there is not enough memory to read it\n"


def test_no_plan(build, tmp_path):
    path = tmp_path / "plan"
    for data in (b"", b"x" * 200, bytes(400)):
        path.write_bytes(data)
        done = subprocess.run([build / "bin" / "replay", path], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and str(path) in done.stderr


def test_info(hak, tmp_path):
    path = tmp_path / "a.trace"
    path.write_bytes(made.trace(made.module(1), [
        Event(MALLOC, 1, 1, 0x1000, 100), Event(MALLOC, 2, 1, 0x2000, 70_000, module=1, offset=0x77),
        Event(FREE, 3, 2, 0x1000), Event(FREE, 4, 2, 0x9000, time_us=5000)]))  # fmt: skip
    assert hak(path, "--against", "unknown").returncode == 2
    done = hak(path, "--info", "--against", "unknown")  # it needs no allocators
    assert done.returncode == 0 and done.stderr == ""
    for text in ("3: 2 malloc, 1 free", "70,100 bytes, at event 1", "1 of 1, 100.0%", "1 frees of blocks from before",
                 "libmade.so+0x77", "64 to 128"):  # fmt: skip
        assert text in done.stdout, done.stdout


def test_recorded_programs_replay_on_all(hak, build, tmp_path):
    for name, words in (
        ("handoff", ["2", "2", "100"]),
        ("larson", ["3", "20", "20"]),
        ("large_mix", ["40", "64", "4096", "500"]),
    ):
        path = tmp_path / f"{name}.trace"
        assert hak("--out", path, "--", build / "bin" / name, *words, verb="record").returncode == 0
        done = hak(path, "--against", "glibc", "--runs", 1, "--json", tmp_path / name)
        assert done.returncode == 0, done.stdout
        with trace.Trace(path, trace.library_in(build)) as found:
            sums = allocations.tally(found)
        for row in rows.read([tmp_path / name]):
            assert row.result["live_peak_kb"] == sums.live_peak // 1024
            assert row.result["threads"] == sums.threads
            assert row.result["heap_peak_kb"] > 0.9 * row.result["live_peak_kb"]


def test_a_real_program(hak, build, tmp_path):
    """The control: another input is another trace."""
    programs = {
        "perl": lambda count: ["-e", f"my %h; $h{{$_}} = $_ x 3 for 1..{count}; print scalar keys %h"],
        "sqlite3": lambda count: [":memory:", f"select count(distinct hex(value)) from generate_series(1, {count})"],
    }  # fmt: skip
    name = next(filter(shutil.which, programs), None)
    if not name:
        pytest.skip("neither perl nor sqlite3")
    peaks = {}
    for count in (3000, 6000):
        path = tmp_path / f"{count}.trace"
        done = hak("--out", path, "--", name, *programs[name](count), verb="record")
        assert (done.returncode, done.stdout.strip()) == (0, str(count)), done.stderr
        done = hak(path, "--against", "glibc", "--runs", 1, "--json", tmp_path / f"{count}.rows")
        assert done.returncode == 0, done.stdout + done.stderr
        with trace.Trace(path, trace.library_in(build)) as found:
            sums = allocations.tally(found)
            assert found.facts.program == name and found.facts.problem == "" and sums.events > count
        stored = rows.read([tmp_path / f"{count}.rows"])
        assert [row.allocator for row in stored] == ["hakmem", "glibc"]
        assert len({row.result["hash"] for row in stored}) == 1
        for row in stored:
            assert row.result["operations"] == sums.events and row.result["live_peak_kb"] == sums.live_peak // 1024
            points = len(row.result["curve_progress"])
            assert 2 <= points <= 300 and points == len(row.result["curve_rss_kb"]) == len(row.result["curve_live_kb"])
            assert row.result["heap_peak_kb"] > 0.9 * row.result["live_peak_kb"]
        peaks[count] = sums.live_peak
    assert peaks[6000] > 1.2 * peaks[3000]
