"""hak bench policy: costs become means, recoveries and goals as they should; the workloads are what they say; all of it
runs, tiny, with a made-up simulator beside the real program."""

import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
from types import SimpleNamespace

import forked
import pytest

from lab.judge import policy as judge
from lab.judge.outcome import Outcome, Series
from lab.judge.policy import FILE, LARGE_ROW, MODES, NOTHING, OFF, SMALL_ROW, Costs, Step
from lab.run import policy
from lab.store import rows

# Costs of a block taken: at_once 100, warm 50; evolving 80, with ratings 55; the trace need not be readable.
FAKE = f"""#!{sys.executable}
import json, sys
words = sys.argv[1:]
trace = open(words[-1], "rb").read()
lines = trace.splitlines() if trace[:1].isdigit() else [b""] * 10
if "--save" in words:
    open(words[words.index("--save") + 1], "w").write("ratings")
each = 55 if "--load" in words and open(words[words.index("--load") + 1]).read() == "ratings" else 80
def costs(count):
    return {{"evolving": each * count, "fixed": {{"at_once": 100 * count, "1s": 100 * count, "warm": 50 * count}}}}
print(json.dumps({{"events": len(lines), "seconds": 1, "best_of_arm": 40 * len(lines), "best_fixed": "warm", "arms": 1,
                  "matches": 2, "switches": 3}} | costs(len(lines))))
if "--each" in words:
    for i in range(1, len(lines) + 1):
        print(json.dumps({{"event": i}} | costs(i)))
"""


# --- arithmetic --------------------------------------------------------------------------------------


def costs(work, nothing, file, **fixed):
    return Costs(work, fixed, nothing, file, best_of_arm=1)


def test_means_are_relative_to_each_workloads_best():
    found = judge.means([costs("a", 12, 10, at_once=10, warm=40), costs("b", 300, 200, at_once=800, warm=200)])
    assert found.works == 2 and found.one == "at_once"
    assert found.nothing == pytest.approx((1.2 * 1.5) ** 0.5) and found.file == pytest.approx(1)
    assert found.fixed == pytest.approx({"at_once": 2, "warm": 2})
    assert found.nothing_against_one == pytest.approx((1.2 * 1.5) ** 0.5 / 2)
    assert found.file_against_one == pytest.approx(0.5)


def test_a_workload_without_costs_is_in_no_mean():
    empty = costs("empty", 0, 0, at_once=0, warm=0)
    free = costs("free", 3, 3, at_once=5, warm=0)
    assert empty.relative(0) is None and judge.means([empty, free]) is None
    assert judge.means([empty, free, costs("a", 2, 2, at_once=1, warm=4)]).nothing == 2
    assert judge.means([costs("a", 2, None, at_once=1)]).file is None


def steps(*prices):
    """A step an event, of (evolving, a, b) each."""
    found, total = [Step(0, 0, {"a": 0, "b": 0})], [0, 0, 0]
    for event, price in enumerate(prices, 1):
        total = [sum(pair) for pair in zip(total, price, strict=True)]
        found.append(Step(event, total[0], {"a": total[1], "b": total[2]}))
    return found


def test_recovery_counts_events_after_the_turn():
    before, late, back = (1, 1, 5), (9, 9, 2), (2, 9, 2)
    found = judge.recovery(steps(*[before] * 100, *[late] * 30, *[back] * 100), [100], window=10)
    assert found == [30]
    # The limit: 1.05 of the best is back, 1.15 is not.
    assert judge.recovery(steps(*[before] * 10, *[(2.1, 9, 2)] * 30), [10], window=10) == [0]
    assert judge.recovery(steps(*[before] * 10, *[(2.3, 9, 2)] * 30), [10], window=10) == [None]


def test_recovery_lasts_until_the_next_turn():
    good, bad = (2, 9, 2), (9, 9, 2)
    prices = [*[good] * 10, *[good] * 20, *[bad] * 5, *[good] * 20, *[(1, 1, 9)] * 30]
    assert judge.recovery(steps(*prices), [10, 55], window=10) == [25, 0]
    # What changing to something better costs once is no relapse.
    assert judge.recovery(steps(*[good] * 30, (5, 9, 2), *[good] * 60), [0], window=10) == [0]
    assert judge.recovery(steps(*[good] * 20), [15], window=10) == [None], "there is no whole window"


def outcome(work, key="seconds", runs=9, **by_mode):
    """by_mode: the value in every run, of off 1."""
    values = {OFF: 1.0, NOTHING: by_mode.get("nothing", 1.0), FILE: by_mode.get("file", 1.0)}
    plain = {"seconds": 1.0, "rss_ms_kb": 1.0, "ops_per_s": 1.0}
    return Outcome(work, NOTHING, [
        Series(mode, work, False, results={run: plain | {key: value} for run in range(1, runs + 1)})
        for mode, value in values.items()])  # fmt: skip


def goals(*measured, overheads=None, recovered=(10, 50), nothing=105, file=102):
    """All met, but for what is given."""
    found = [costs("a", nothing, file, one=100, other=400), costs("b", nothing, file, one=400, other=100)]
    clean = {LARGE_ROW: outcome(LARGE_ROW), SMALL_ROW: outcome(SMALL_ROW)}
    return judge.goals(found, recovered, measured or [outcome("a")], clean | (overheads or {}))


def missed(found):
    return [goal.text for goal in found if goal.is_missed]


def test_goals_that_are_met():
    assert missed(goals()) == [] and judge.verdict(goals()) == "goals met: 9 of 9"


@pytest.mark.parametrize("found, words", [
    (goals(nothing=111), ["cost, from nothing / best fixed of each"]),
    (goals(file=104), ["cost, from a file / best fixed of each"]),
    (goals(nothing=190, file=190),
     ["from nothing", "from a file", "from nothing / best single", "from a file / best s"]),
    (goals(outcome("a"), outcome("b", nothing=1.04)), ["wall time"]),
    (goals(outcome("a"), outcome("b", file=1.04)), ["wall time"]),
    (goals(outcome("a", "rss_ms_kb", nothing=1.06)), ["RSS x time"]),
    (goals(recovered=(10, 51)), ["after a turn"]),
    (goals(recovered=(None, 5)), ["after a turn"]),
    (goals(overheads={LARGE_ROW: outcome(LARGE_ROW, "ops_per_s", nothing=0.98)}), ["time of large_mix"]),
    (goals(overheads={SMALL_ROW: outcome(SMALL_ROW, "ops_per_s", nothing=0.98)}), ["time of random_mixed"]),
])  # fmt: skip
def test_each_goal_can_be_missed(found, words):
    assert len(missed(found)) == len(words), missed(found)
    assert all(word in text for word, text in zip(words, missed(found), strict=True)), missed(found)
    assert "missed: " in judge.verdict(found)


def test_goals_within_their_limits_are_met():
    near = [outcome("a", nothing=1.029), outcome("b", "rss_ms_kb", file=1.049)]
    assert missed(goals(*near, overheads={LARGE_ROW: outcome(LARGE_ROW, "ops_per_s", nothing=0.995)})) == []


def test_what_was_not_measured_is_said():
    found = judge.goals([], None, [], {})
    assert not any(goal.is_met or goal.is_missed for goal in found) and judge.verdict(found) == "no goal was measured"
    few = judge.goals([], None, [outcome("a", runs=3, nothing=1.5)], {})
    assert [goal.word for goal in few if goal.is_missed] == ["missed, too few runs"]


def test_stored_rows_say_the_same():
    """What a run found, from the rows that it has stored."""
    long, short = costs("turn", 105, 102, at_once=100, warm=400), costs("turn", 130, 110, at_once=100, warm=300)
    result = long.result | {judge.SHORT + key: value for key, value in short.result.items()}

    def row(work, allocator, run, result):
        return SimpleNamespace(work=work, allocator=allocator, run=run, result=result, session="s", is_tiny=False,
                               command=[work])  # fmt: skip

    stored = [row("turn", judge.MODELLED, 1, result | {"recovered": judge.stored([17, None])})]
    outcomes = [outcome("turn", nothing=1.01), outcome(LARGE_ROW)]
    stored += [row(each.work, series.name, run, values) for each in outcomes for series in each.series
               for run, values in series.results.items()]  # fmt: skip
    found = judge.from_rows(stored)
    assert (found.costs, found.short, found.recovered) == ([long], [short], [17, None])
    assert found.goals == judge.goals([long], [17, None], outcomes[:1], {LARGE_ROW: outcomes[1]})
    assert "after a turn, a window of 48 events within 1.10 x the best fixed" in missed(found.goals)
    assert judge.from_rows([]) == judge.Found()


# --- the program -------------------------------------------------------------------------------------


def load(build, *words, status=0):
    done = subprocess.run([build / "bin" / "policy_load", *words], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def judged_stream(text):
    """(events, milliseconds, sites, most bytes live, problem) of an event stream."""
    live, most, clock, sites, problem = {}, 0, 0, set(), ""
    events = [line.split() for line in text.splitlines()]
    for ms, sign, site, size in events:
        problem = problem or ("the clock goes back" if int(ms) < clock else "")
        clock, block = int(ms), (int(site), int(size))
        sites.add(int(site))
        live[block] = live.get(block, 0) + (1 if sign == "+" else -1)
        problem = problem or ("something is freed that is not there" if live[block] < 0 else "")
        most = max(most, sum(size * count for (_, size), count in live.items()))
    problem = problem or ("something is left" if any(live.values()) else "")
    return len(events), clock, sites, most, problem


def test_streams_of_events_are_what_they_are_said_to_be(build):
    for work in policy.MADE:
        text = load(build, work, "--events")
        count, ms, sites, most, problem = judged_stream(text)
        assert not problem, (work, problem)
        assert 100 <= count <= 3000 and 19000 <= ms <= 65000 and most <= 256 << 20, (work, count, ms, most)
        assert text == load(build, work, "--events"), f"{work} is another one each time"
        assert len(sites) == {"hundred": 100, "one-shot": 20, "server": 7, "bursts": 2}.get(work, 1), (work, sites)
    hundred, wrapped = (load(build, work, "--events").splitlines() for work in ("hundred", "wrapper"))
    without_site = [[line.split()[i] for i in (0, 1, 3)] for line in hundred]
    assert without_site == [[line.split()[i] for i in (0, 1, 3)] for line in wrapped]


def test_a_wrong_stream_is_noticed():
    assert judged_stream("0 + 1 10\n5 - 1 10")[-1] == ""
    for text in ("5 + 1 10\n0 - 1 10", "0 - 1 10", "0 + 1 10", "0 + 1 10\n0 - 2 10\n0 + 2 10"):
        assert judged_stream(text)[-1], text


def test_the_turn_is_where_it_is_said_to_be(build):
    """The gap between a round's frees and the next one's mallocs."""
    events = [line.split() for line in load(build, policy.TURNING, "--events").splitlines()]
    gaps = {i: int(now[0]) - int(last[0]) for i, (last, now) in enumerate(itertools.pairwise(events), 1)
            if last[1] == "-" and now[1] == "+"}  # fmt: skip
    first, second = map(int, load(build, policy.TURNING, "--turns").split())
    assert 0 < first < second < len(events)
    for event, gap in gaps.items():
        assert (gap > 1000) == (first < event <= second), (event, gap)


def test_a_real_run_reads_its_memory(build, tmp_path):
    result = json.loads(load(build, "reuse", "--tiny"))
    assert result["work"] == "reuse" and result["events"] == 96 and result["seconds"] > 0
    blocks = 24 * 2048
    assert blocks < result["rss_peak_kb"] < blocks + 8192 and result["faults"] > blocks / 4
    assert 0 < result["rss_ms_kb"] <= result["rss_peak_kb"] * result["seconds"] * 1000
    # Most of its life this one has 64 MiB: it has them for longer than it took to start.
    script = ("import os, time; x = bytearray(64 << 20); up = float(open('/proc/uptime').read().split()[0])\n"
              "began = int(open('/proc/self/stat').read().split()[21]) / os.sysconf('SC_CLK_TCK')\n"
              "time.sleep(0.5 + 2 * (up - began))")  # fmt: skip
    watched = json.loads(load(build, "--watch", "--env", "A=1", sys.executable, "-c", script))
    mean = watched["rss_ms_kb"] / (watched["seconds"] * 1000)
    assert 32 << 10 < mean < watched["rss_peak_kb"] and watched["work"] == os.path.basename(sys.executable)


@pytest.mark.parametrize("words, says", [
    ([], "which workload?"),
    (["nonsense"], "unknown workload 'nonsense'"),
    (["reuse", "--speed", "0"], "--speed: '0'"),
    (["reuse", "--speed"], "--speed: ''"),
    (["reuse", "--nonsense"], "unknown option --nonsense"),
    (["reuse", "turn"], "one argument too many: turn"),
    (["--watch", "--env", "X"], "--watch takes"),
])  # fmt: skip
def test_wrong_usage_of_the_program(build, words, says):
    assert says in load(build, *words, status=2)


# --- the verb ----------------------------------------------------------------------------------------


@pytest.fixture
def made_build(build, tmp_path) -> pathlib.Path:
    """The build with a simulator of our own."""
    folder = tmp_path / "build"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").symlink_to(build / "lib")
    for name in {"measure", *policy.PROGRAMS} - {"policy_simulate"}:
        (folder / "bin" / name).symlink_to(build / "bin" / name)
    simulator = folder / "bin" / "policy_simulate"
    simulator.write_text(FAKE, encoding="utf-8")
    simulator.chmod(0o755)
    return folder


def bench(tree, build, *arguments):
    return forked.hak("bench", "policy", "--tiny", "--build-dir", build, *arguments)


def test_every_workload_runs(tree, made_build, library, tmp_path):
    path = tmp_path / "rows.jsonl"
    done = bench(tree, made_build, "--lib", f"hakmem={library}", "--json", path)
    said = done.stdout[-4000:] + done.stderr[-1500:]
    stored = rows.read([path])
    assert {row.kind for row in stored} == {"policy"} and str(tmp_path) not in path.read_text()
    modelled = {row.work: row.result for row in stored if row.allocator == "modelled"}
    works = [work for work in policy.WORKS if work != policy.COMPILER or shutil.which("g++")]
    assert set(modelled) == set(works), said
    reuse = modelled["reuse"]
    assert (reuse["nothing"], reuse["file"], reuse["fixed_warm"]) == (80 * 96, 55 * 96, 50 * 96)
    assert "  1.60  " in done.stdout and "  1.10  " in done.stdout, said  # evolving and from a file, of warm
    for work in (*works, *policy.OVERHEADS):
        if work == policy.PURSUER:  # modelled only
            continue
        modes = {row.allocator for row in stored if row.work == work} - {"modelled"}
        assert {OFF, NOTHING} <= modes, (work, said)
    # A mode is the same library with another setting.
    settings = {row.allocator: row.settings for row in stored if row.work == "reuse" and row.allocator != "modelled"}
    assert settings[OFF]["HAKMEM_POLICY"] == "off" and settings[NOTHING]["HAKMEM_POLICY"] == "evolving"
    without_file = [line for line in done.stdout.splitlines() if "the engine wrote no file" in line]
    if not without_file:  # the library knows HAKMEM_POLICY_FILE
        assert done.returncode == 0 and set(settings) == set(MODES), said
    assert "tiny: no goal is judged" in done.stdout


@pytest.mark.parametrize("words, says", [
    (["nonsense"], "unknown workload 'nonsense' of policy; known: reuse,"),
    (["reuse", "--against", "glibc"], "--against means nothing to it"),
    (["reuse", "--pin", "0"], "--pin means nothing to it"),
    (["reuse", "--lib", "hakmem=/nonexistent"], "no file /nonexistent"),
    (["reuse", "--json", "/nonexistent/x"], "--json: /nonexistent/x: No such file"),
])  # fmt: skip
def test_wrong_usage(tree, made_build, words, says):
    done = bench(tree, made_build, *words)
    assert done.returncode == 2 and says in done.stderr, done.stderr


@pytest.mark.parametrize("script, says", [
    ("echo no; exit 0", "policy_simulate: its output is not JSON"),
    ("echo why >&2; exit 3", "policy_simulate: why"),
    ("echo '{}'", "policy_simulate: no 'fixed' in its output"),
])  # fmt: skip
def test_a_simulator_that_fails_is_a_line(tree, made_build, library, script, says):
    (made_build / "bin" / "policy_simulate").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    done = bench(tree, made_build, "reuse", "--lib", f"hakmem={library}")
    assert done.returncode == 1 and f"reuse: {says}" in done.stdout, done.stdout + done.stderr
