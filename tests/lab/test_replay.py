"""hak replay."""

import csv
import os
import shutil
import signal
import subprocess
import sys

import forked
import made_trace as made
import pytest
from cases import until
from made_trace import FREE, MALLOC, Event, crossing

from lab.judge import allocations
from lab.run import allocators, replay
from lab.store import rows, trace


@pytest.fixture
def hak(build, library):
    """hak(WORD...) is hak replay: an object with returncode, stdout, stderr."""

    def run(*words, verb="replay"):
        return forked.hak(verb, *words, variables={"HAK_BUILD": str(build), "HAK_LIB": str(library)})

    return run


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


def test_a_wrong_allocator_is_called_wrong(hak, plugins, tmp_path, no_peers):
    (tmp_path / "a.trace").write_bytes(crossing(20_000, 1))
    mutant = plugins / "test-mutant-preload.so"
    done = hak(tmp_path / "a.trace", "--against", f"glibc,mutant={mutant},snmalloc", "--runs", 1)
    assert done.returncode == 1
    assert [line.split(":")[1].strip() for line in done.stdout.splitlines() if line.startswith("  mutant:")] in (
        ["wrong work"], ["died of SIGSEGV"], ["died of SIGABRT"])  # fmt: skip
    assert "snmalloc: not installed" in done.stdout and "  hakmem:" not in done.stdout


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


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_an_early_end_shows_what_is_known(build, tree, library, tmp_path, number):
    (tmp_path / "a.trace").write_bytes(crossing(5000, 1))
    environment = dict(os.environ) | {"HAK_BUILD": str(build), "HAK_LIB": str(library), "PYTHONPATH": str(tree),
                                      "TMPDIR": str(tmp_path)}  # fmt: skip
    words = ["replay", "a.trace", "--against", "glibc", "--runs", "100000", "--json", "rows"]
    with subprocess.Popen([sys.executable, "-m", "lab", *words], env=environment, cwd=tmp_path, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:  # fmt: skip
        until(lambda: running.poll() is not None or (tmp_path / "rows").read_text().count("\n") >= 4, FileNotFoundError)
        running.send_signal(number)
        said, complaints = running.communicate(timeout=60)
    assert running.returncode == 130 and "hakmem is" in said, complaints
    assert complaints == "hak: stopped; what was measured until then is above\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.trace", "rows"]  # no plan, no links


def test_too_little_memory_is_a_sentence(hak, build, tmp_path, monkeypatch):
    path = tmp_path / "a.trace"
    path.write_bytes(crossing(2000, 1))
    assert "peak live" in hak(path, "--info").stdout
    monkeypatch.setattr(trace._loaded(str(trace.library_in(build))), "trace_is_short_of_memory", lambda _: True)
    done = hak(path, "--info")
    assert done.returncode == 1 and done.stderr == f"hak: {path}: there is not enough memory to read it\n"


def test_info(hak, tmp_path):
    path = tmp_path / "a.trace"
    path.write_bytes(made.trace(made.module(1), [
        Event(MALLOC, 1, 1, 0x1000, 100), Event(MALLOC, 2, 1, 0x2000, 70_000, module=1, offset=0x77),
        Event(FREE, 3, 2, 0x1000), Event(FREE, 4, 2, 0x9000, time_us=5000)]))  # fmt: skip
    assert hak(path, "--against", "unknown").returncode == 2
    done = hak(path, "--info", "--csv", tmp_path / "a.csv")
    assert done.returncode == 2 and done.stderr == "hak: --csv means nothing to --info\n"
    done = hak(path, "--info")
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
