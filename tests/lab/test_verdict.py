"""The verdict is right: an allocator that was slowed is slower, 20 times out of 20. A copy of the same library is no
difference, 19 times out of 20 at least: the level that lab/judge/stats.py states leaves one comparison in fifty."""

import os
import shutil

from lab.judge import stats
from lab.judge.outcome import RATE
from lab.run import allocators, workloads

TIMES = 20
# One pair may lie apart on each side, and the interval holds the median at 99.7 %: the level that is stated, 98 %, is the
# least, and at that one comparison of equals in a hundred would be called different, which is one of twenty too often.
RUNS = 13


def verdicts(measuring, pair, subject, operations):
    """The words about speed and peak memory of one comparison after another, each with another seed."""
    row = workloads.Row("verdict", "own", f"random_mixed {operations} 400 SEED", "")
    for seed in range(1, TIMES + 1):
        source = measuring(runs=RUNS, is_tiny=False, seed=seed, cpu=max(os.sched_getaffinity(0)), is_cpu_time=True)
        outcome, entries = source.open_row(row, pair, subject)
        source.run_row(row, entries)
        assert not any(series.problem for series in outcome.series)
        other = pair[1].name
        yield (
            stats.verdict(outcome.ratio(other, subject, RATE), stats.SPEED),
            stats.verdict(outcome.ratio(other, subject, "rss_peak_kb"), stats.SIZE),
            outcome.ratio(other, subject, RATE),
        )


def test_a_copy_is_no_difference(measuring, library, tmp_path):
    copy = shutil.copy(library, tmp_path / "copy.so")
    pair = [allocators.Allocator("hakmem", str(library)), allocators.Allocator("copy", str(copy))]
    wrong = [found for found in verdicts(measuring, pair, "hakmem", 3000000) if found[:2] != (stats.SAME, stats.SAME)]
    assert len(wrong) <= 1, wrong


def test_a_slowed_allocator_is_slower(measuring, plugins):
    slowed = str(plugins / "test-slowed-preload.so")
    pair = [allocators.Allocator("glibc", None), allocators.Allocator("slowed", slowed)]
    for speed, _, ratio in verdicts(measuring, pair, "glibc", 1000000):
        assert speed == "slower", ratio
