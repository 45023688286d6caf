"""The plans that bin/replay works by: they end whatever the schedule is, and damaged ones are refused."""

import random
import subprocess

import numpy
import pytest
from made_trace import crossing

from lab.store import trace

PLAN_HEAD = numpy.dtype([("mark", "u8"), ("version", "u4"), ("threads", "u4"), ("records", "u8"), ("steps", "u8"),
                         ("slots", "u4"), ("samples", "u4"), ("live_peak", "u8"), ("live_end", "u8"), ("unit_bytes", "u8")])  # fmt: skip
FREE_STEP, REALLOC_STEP, SYNC, SAMPLE, SPAWN = range(3, 8)
WINDOW, STRIDE = 4096, 512


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


def test_no_plan(build, tmp_path):
    path = tmp_path / "plan"
    for data in (b"", b"x" * 200, bytes(400)):
        path.write_bytes(data)
        done = subprocess.run([build / "bin" / "replay", path], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and str(path) in done.stderr
