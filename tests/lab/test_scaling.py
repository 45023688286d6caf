"""hak bench scaling: the model against what queues are known to do, and the command."""

import dataclasses
import pathlib
import re

import forked
import pytest

from lab.judge import scaling
from lab.judge.scaling import ALL, OTHER, OWN, Shared, Work

WORK = Work("work", 10.0, {"events": 0.01})  # one event in 100 ns


def thing(scope, hold_ns):
    return (Shared("thing", scope, {"events": 1}, hold_ns),)


def efficiency(shared, cores):
    (found,) = scaling.scaled(WORK, (cores,), shared, uses=20_000)
    return found.efficiency, found.busy


def test_nothing_is_lost_where_nothing_is_shared():
    assert efficiency(thing(OWN, 50), 64)[0] == pytest.approx(1, abs=0.05)


def test_a_lock_of_the_process_bounds_the_rate():
    # A use lasts 50 ns, and the line's way: so the process has one event in 150 ns, and a core alone one in 1,000.
    cores, one_ns = 64, 1000
    found, busy = efficiency(thing(ALL, 50), cores)
    assert found == pytest.approx(one_ns / (50 + scaling.LINE_NS) / cores, rel=0.1)
    assert busy > 0.95


def test_locks_of_many_pools_do_not():
    found, busy = efficiency(thing(OTHER, 50), 64)
    assert found > 0.8
    assert busy < 0.5


def test_a_list_of_envelopes_for_the_process_would_not_scale():
    work = Work("handoff", 20.0, {"envelopes_sent": 1 / 124})
    one = [dataclasses.replace(each, scope=ALL, uses={"envelopes_sent": 2}) if "envelopes" in each.name else each
           for each in scaling.SHARED]  # fmt: skip
    (now,), (before,) = (scaling.scaled(work, (64,), shared, uses=20_000) for shared in (scaling.SHARED, one))
    assert now.efficiency > 4 * before.efficiency
    assert before.busiest == "pool's emptied envelopes"


def test_every_event_is_counted_by_the_library(build):
    known = (pathlib.Path(__file__).parents[2] / "include/hakmem/stats.h").read_text(encoding="utf-8")
    for each in scaling.SHARED:
        for name in each.uses:
            assert re.search(rf"\b{name}, COUNTER\b", known), name


def test_the_command(build):
    done = forked.hak("bench", "scaling", "--tiny", "handoff-1-1", "--build-dir", build)
    assert done.returncode == 0, done.stderr
    assert "pool's lock" in done.stdout
    assert re.search(r"^\s*256\s+[01]\.\d\d ", done.stdout, re.MULTILINE)
    for words, problem in ((["nothing"], "not 'nothing'"), (["--json", "x"], "stores nothing"),
                           (["--runs", "3"], "from one run")):  # fmt: skip
        done = forked.hak("bench", "scaling", *words, "--build-dir", build)
        assert done.returncode == 2
        assert problem in done.stderr
