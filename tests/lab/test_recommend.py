"""Known answers of the rule that docs/compare.md writes down."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.judge import recommend, stats
from lab.judge.recommend import CPU, MEMORY, TIME

GLIBC = (1.0, 1.0, 100_000)
N = 14


def measured(n=N, noise=0.01, **allocators):
    """name=(seconds, CPU seconds, KiB): n rounds around these, not the same for any two."""
    drawn = random.Random(1)
    return {
        name.replace("_", "-"): {
            figure.key: {run: value * drawn.uniform(1 - noise, 1 + noise) for run in range(1, n + 1)}
            for figure, value in zip((TIME, CPU, MEMORY), values, strict=True)
        }
        for name, values in allocators.items()
    }


def advice(n=N, noise=0.01, **allocators):
    return recommend.recommend(measured(n, noise, glibc=GLIBC, **allocators), "glibc")


def test_a_peer_that_wins_is_recommended():
    found = advice(mimalloc=(0.8, 0.8, 100_000), hakmem=(0.95, 0.95, 100_000))
    assert found.name == "mimalloc"
    assert found.sentence.startswith("use mimalloc: wall time 0.80 x glibc's (0.80-0.81), CPU time 0.80 x ")
    assert "no difference in peak RSS, 1.00 x glibc's" in found.sentence
    assert found.sentence.endswith(f"n = {N}, intervals at 99.2% each")


def test_nothing_better_is_stay():
    found = advice(mimalloc=GLIBC, hakmem=(1.3, 1.3, 120_000))
    assert found.name == "glibc"
    assert found.sentence.startswith("stay with glibc: no allocator is faster or smaller at this n (n = 14")


def test_noise_is_no_reason_to_change():
    assert advice(noise=0.3, hakmem=(0.97, 0.97, 97_000)).name == "glibc"
    assert advice(noise=0.01, hakmem=(0.97, 0.97, 97_000)).name == "hakmem"  # the control: the same, seen clearly


def test_smaller_and_not_slower_is_enough():
    found = advice(hakmem_lean=(1.0, 1.0, 81_000), tcmalloc=(1.0, 1.0, 130_000))
    assert found.name == "hakmem-lean"
    assert found.sentence.startswith("use hakmem-lean: peak RSS 0.81 x glibc's (0.8")
    assert "no difference in wall time" in found.sentence


@pytest.mark.parametrize("loss", [(0.7, 0.7, 150_000), (0.7, 1.4, 100_000), (1.4, 1.4, 50_000)])
def test_a_trade_is_named_but_not_recommended(loss):
    found = advice(hakmem=loss)
    assert found.name == "glibc"
    assert found.sentence.startswith("stay with glibc unless one figure is all that counts: hakmem is ")
    assert "), but " in found.sentence


def test_trades_beside_a_winner():
    found = advice(mimalloc=(0.8, 0.8, 100_000), hakmem_lean=(1.2, 1.2, 60_000), hakmem_speed=(0.6, 0.6, 150_000))
    assert found.name == "mimalloc"
    assert "; hakmem-speed is fastest, wall time 0.60 x" in found.sentence
    assert "), but peak RSS 1.5" in found.sentence
    assert "; hakmem-lean is smallest, peak RSS 0.60 x" in found.sentence


def test_time_times_memory_decides():
    assert advice(a=(0.8, 0.8, 100_000), b=(1.0, 1.0, 70_000)).name == "b"
    assert advice(a=(0.8, 0.8, 100_000), b=(1.0, 1.0, 90_000)).name == "a"
    assert advice(a=(0.9, 0.9, 80_000), b=(0.8, 0.8, 100_000)).name == "a"


def test_equals_are_named():
    found = advice(hakmem=(0.8, 0.8, 100_000), jemalloc=(0.8, 0.8, 100_000), mimalloc=(0.9, 0.9, 100_000))
    other = {"hakmem": "jemalloc", "jemalloc": "hakmem"}[found.name]
    assert f"; {other} cannot be told apart from it;" in found.sentence


@pytest.mark.parametrize(("noise", "is_told"), [(0.1, False), (0.001, True)])
def test_those_that_win_are_told_apart_by_their_intervals_against_the_reference(noise, is_told):
    """Where the reference is noisy, the two to each other would be told apart: that verdict is not one of the family."""
    found = measured(noise=0.001, a=(0.5, 0.5, 100_000), b=(0.48, 0.48, 100_000))
    found |= measured(noise=noise, glibc=GLIBC)
    found["glibc"]["rss_peak_kb"] = dict.fromkeys(found["glibc"]["seconds"], 100_000)
    assert recommend.compare(found["b"], found["a"], TIME, recommend.level(2)).counts == -1
    advice = recommend.recommend(found, "glibc")
    assert advice.name == "b"
    assert ("a cannot be told apart from it" in advice.sentence) != is_told


def test_one_that_failed_is_of_the_family_too():
    """Its verdicts are in the tables: the sentence uses the same intervals as these."""
    found = measured(glibc=GLIBC, hakmem=(0.8, 0.8, 100_000))
    assert "intervals at 98.3% each" in recommend.recommend(found, "glibc").sentence
    assert "intervals at 99.2% each" in recommend.recommend(found, "glibc", 2).sentence
    few = recommend.recommend(measured(n=7, glibc=GLIBC, hakmem=(0.8, 0.8, 100_000)), "glibc", 2)
    assert "n = 7 is too few for 3 figures of 2 allocators; 8 rounds at least" in few.sentence


def test_cpu_time_alone_is_enough_and_is_named():
    found = advice(hakmem=(1.0, 0.8, 100_000))
    assert found.name == "hakmem"
    assert found.sentence.startswith("use hakmem: CPU time 0.80 x glibc's")


def test_cpu_time_is_not_called_fast():
    found = advice(hakmem=(1.0, 0.5, 200_000))
    assert "hakmem is cheapest, CPU time 0.50 x glibc's" in found.sentence
    found = advice(hakmem=(1.0, 0.5, 200_000), mimalloc=(0.9, 0.9, 200_000))
    assert "mimalloc is fastest, wall time 0.90 x glibc's" in found.sentence


def test_less_than_a_mebibyte_does_not_count():
    def tiny(kb):
        return recommend.recommend(measured(glibc=(1, 1, 1500), hakmem=(1.0, 1.0, kb)), "glibc")

    assert tiny(1000).name == "glibc"
    assert tiny(300).name == "hakmem"
    faster = recommend.recommend(measured(glibc=(1, 1, 1500), hakmem=(0.5, 0.5, 2200)), "glibc")
    assert faster.name == "hakmem"
    assert "less than 1 MiB apart" in faster.sentence


def test_too_few_rounds_say_nothing():
    found = advice(n=6, hakmem=(0.1, 0.1, 10_000))
    assert found.name is None
    assert found.sentence.startswith(
        "no recommendation: n = 6 is too few for 3 figures of 1 allocator; 7 rounds at least"
    )


def test_the_more_allocators_the_stricter():
    levels = [recommend.level(number) for number in range(1, 10)]
    assert levels == sorted(set(levels))
    assert all(3 * number * (1 - level) == pytest.approx(0.05) for number, level in enumerate(levels, 1))
    assert stats.runs_needed(recommend.level(6)) <= N


def test_nobody_ran():
    assert recommend.recommend({}, "glibc").sentence == "no recommendation: glibc was not measured"
    assert recommend.recommend(measured(glibc=GLIBC), "glibc").sentence == (
        "stay with glibc: no other allocator ran the program"
    )


FIGURES = st.tuples(st.sampled_from((0.6, 0.9, 1.0, 1.2)), st.sampled_from((0.6, 0.9, 1.0, 1.2)),
                    st.sampled_from((50_000, 90_000, 100_000, 140_000)))  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(st.lists(FIGURES, min_size=3, max_size=3, unique=True))
def test_nobody_is_favoured(figures):
    """Who carries which name changes nothing but the name; the pick is never worse than the reference."""
    names = ("hakmem", "mimalloc", "jemalloc")
    data = [measured(noise=0.002, x=values)["x"] for values in figures]
    picks = set()
    for order in itertools.permutations(names):
        found = recommend.recommend({"glibc": measured(noise=0.002, x=GLIBC)["x"]} | dict(zip(order, data, strict=True)),
                                    "glibc")  # fmt: skip
        picks.add(figures[order.index(found.name)] if found.name in order else GLIBC)
    scores = {time * memory if time != 1 else cpu * memory for time, cpu, memory in picks}
    assert len(scores) == 1
    assert all(mine <= theirs for pick in picks for mine, theirs in zip(pick, GLIBC, strict=True))
