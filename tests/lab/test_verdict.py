"""The verdict is right: an allocator that was slowed is slower, never faster. A copy of the same library is no
difference. The level that lab/judge/stats.py states leaves one comparison in fifty, so a difference counts if it is
found twice. Where other work disturbs the machine the interval gets wide and the verdict is "no difference": then the
comparison is made again, as a reader of such a verdict would."""

import os
import shutil

from lab.judge import stats
from lab.judge.outcome import RATE
from lab.run import allocators, workloads

TIMES = 4
# Of the comparison of two allocators that differ: 3 of 13 pairs that were disturbed, on one side, are enough to hide
# that.
TRIES = 3
# One pair may lie apart on each side, and the interval holds the median at 99.7 %.
RUNS = 13


def verdicts(measuring, pair, subject, operations, seed):
    """The words about speed and peak memory of one comparison, and the ratio of the rates."""
    row = workloads.Row("verdict", "own", f"random_mixed {operations} 400 SEED", "")
    source = measuring(runs=RUNS, is_tiny=False, seed=seed, cpu=max(os.sched_getaffinity(0)), is_cpu_time=True)
    outcome, entries = source.open_row(row, pair, subject)
    source.run_row(row, entries)
    assert not any(series.problem for series in outcome.series)
    other = pair[1].name
    rate = outcome.ratio(other, subject, RATE)
    size = outcome.ratio(other, subject, "rss_peak_kb")
    return stats.verdict(rate, stats.SPEED), stats.verdict(size, stats.SIZE), rate


def test_a_copy_is_no_difference(measuring, library, tmp_path):
    copy = shutil.copy(library, tmp_path / "copy.so")
    pair = [allocators.Allocator("hakmem", str(library)), allocators.Allocator("copy", str(copy))]
    for seed in range(1, TIMES + 1):
        found = [verdicts(measuring, pair, "hakmem", 3000000, seed)]
        if found[0][:2] != (stats.SAME, stats.SAME):
            found.append(verdicts(measuring, pair, "hakmem", 3000000, seed + TIMES))
        assert found[-1][:2] == (stats.SAME, stats.SAME), found


def test_a_slowed_allocator_is_slower(measuring, plugins):
    slowed = str(plugins / "test-slowed-preload.so")
    pair = [allocators.Allocator("glibc", None), allocators.Allocator("slowed", slowed)]
    for seed in range(1, TIMES + 1):
        found = []
        while not found or (found[-1][0] == stats.SAME and len(found) < TRIES):
            found.append(verdicts(measuring, pair, "glibc", 1000000, seed + len(found) * TIMES))
        assert found[-1][0] == "slower", found
