"""Known answers and properties of the statistics that verdicts are made of."""

import math
import statistics

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from lab.judge import stats

positive = st.floats(min_value=1e-6, max_value=1e6, allow_nan=False)


def test_summary_known_answers():
    found = stats.summarize([2, 4, 4, 4, 5, 5, 7, 9])
    assert (found.n, found.median, found.mean, found.minimum, found.maximum) == (8, 4.5, 5, 2, 9)
    assert found.stdev == pytest.approx(math.sqrt(32 / 7))  # of the sample: n - 1
    assert found.cv == pytest.approx(math.sqrt(32 / 7) / 5)


def test_summary_of_one_value():
    found = stats.summarize([3.0])
    assert (found.low, found.median, found.high, found.stdev) == (3, 3, 3, 0)


@given(st.lists(positive, min_size=1, max_size=30))
@example([30925.0, 30924.48982510695])  # the percentile's rounding lies below the minimum
@settings(max_examples=40, deadline=None)
def test_summary_is_in_order(values):
    found = stats.summarize(values)
    assert found.minimum <= found.low <= found.median <= found.high <= found.maximum


def test_bootstrap_against_scipy_and_theory():
    values = numpy.random.default_rng(5).normal(100, 4, 60)
    low, high = stats.bootstrap(list(values))
    other = scipy_stats.bootstrap(
        (values,), numpy.median, n_resamples=stats.RESAMPLES, confidence_level=stats.SUMMARY_LEVEL, method="percentile",
        rng=numpy.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert (low, high) == pytest.approx(tuple(other))
    # The median's standard error is 1.2533 sigma / sqrt(n) for a normal distribution.
    assert high - low == pytest.approx(2 * 1.96 * 1.2533 * 4 / math.sqrt(60), rel=0.35)
    assert stats.bootstrap(list(values)) == (low, high), "the same values give the same interval"


@pytest.mark.parametrize("n, first, last", [(7, 1, 7), (10, 1, 10), (11, 2, 10), (15, 3, 13), (20, 5, 16)])
def test_interval_known_answers(n, first, last):
    """Order statistics first and last, by the binomial distribution: P(X < first) * 2 <= 1 - level, and not with first + 1."""
    assert stats.interval(range(1, n + 1)) == (first, last)
    assert scipy_stats.quantile_test(range(1, n + 1), p=0.5).confidence_interval(stats.LEVEL) == (first, last)
    assert 2 * scipy_stats.binom.cdf(first - 1, n, 0.5) <= 1 - stats.LEVEL < 2 * scipy_stats.binom.cdf(first, n, 0.5)


def test_interval_wants_enough_runs():
    assert stats.runs_needed(0.95) == 6 and stats.runs_needed(stats.LEVEL) == 7 and stats.runs_needed(0.99) == 8
    assert stats.interval([1.0] * 6) == (-math.inf, math.inf)
    assert stats.verdict(stats.of_ratios([3.0] * 6)) == stats.TOO_FEW
    assert stats.verdict(stats.of_ratios([3.0] * 7)) == "faster"


def _coverage(make, method, n, trials=400):
    """How often an interval holds the true median, 1."""
    random = numpy.random.default_rng(n)
    hits = 0
    for _ in range(trials):
        low, high = method([float(value) for value in make(random, n)])
        hits += low <= 1 <= high
    return hits / trials


NOISES = {
    "normal": lambda random, n: 1 + 0.05 * random.standard_normal(n),
    "skewed": lambda random, n: numpy.exp(0.3 * random.standard_normal(n)),
    "outliers": lambda random, n: 1 + random.standard_t(1.2, n) * 0.02,
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n", [7, 10, 20])
def test_interval_keeps_its_promise(noise, n):
    """Whatever the noise looks like; three standard errors below the level are allowed for."""
    found = _coverage(NOISES[noise], stats.interval, n)
    assert found >= stats.LEVEL - 3 * math.sqrt(stats.LEVEL * (1 - stats.LEVEL) / 400), found


def test_bootstrap_would_not():
    """Why verdicts do not come from it: of 7 runs it claims 98 % and holds fewer."""
    found = _coverage(NOISES["normal"], lambda values: stats.bootstrap(values, 0.98), 7, trials=150)
    assert found < 0.975, found


@given(
    st.dictionaries(st.integers(1, 40), positive, min_size=1), st.dictionaries(st.integers(1, 40), positive, min_size=1)
)
@settings(max_examples=60, deadline=None)
def test_ratio_inverts(first, second):
    there, back = stats.ratio(first, second), stats.ratio(second, first)
    if there is None:
        assert back is None
        return
    assert there.median == pytest.approx(1 / back.median)
    if math.isfinite(there.high):
        assert there.low == pytest.approx(1 / back.high) and there.high == pytest.approx(1 / back.low)


def test_ratio_takes_pairs_only():
    found = stats.ratio({1: 10, 2: 20, 3: 999}, {1: 5, 2: 10, 4: 1})
    assert found.n == 2 and found.median == pytest.approx(2)


def test_ratio_is_paired():
    """A machine that gets slower by the run: the paired ratio does not see it, medians of each side would."""
    drift = [1 / (1 + run) for run in range(9)]
    first = {run: 1.1 * drift[run] for run in range(1, 9)}
    second = {run: drift[run - 1] for run in range(1, 9)}
    assert stats.ratio({run: 1.1 * value for run, value in second.items()}, second).high == pytest.approx(1.1)
    assert statistics.median(first.values()) < statistics.median(second.values())


def test_verdict_words():
    def of(low, high):
        return stats.Ratio(10, math.sqrt(low * high), low, high, low, high)

    assert stats.verdict(of(1.02, 1.3)) == "faster"
    assert stats.verdict(of(1.009, 1.3)) == stats.SAME, "within 1 %"
    assert stats.verdict(of(0.7, 0.98)) == "slower"
    assert stats.verdict(of(0.7, 0.995)) == stats.SAME
    assert stats.verdict(of(0.7, 1.3)) == stats.SAME
    assert stats.verdict(of(1.02, 1.3), stats.SIZE) == "larger" and stats.verdict(of(0.7, 0.9), stats.SIZE) == "smaller"
    assert stats.verdict(of(1.02, 1.3), stats.TIME) == "slower"
    assert stats.verdict(None) == stats.TOO_FEW


def test_verdicts_of_copies_are_no_difference():
    """At 98 % and beyond 1 %, 3 % of noise: of 2000 comparisons of equal things hardly one is called different."""
    random = numpy.random.default_rng(3)
    wrong = 0
    for _ in range(2000):
        ratios = numpy.exp(random.normal(0, 0.03, 11))
        wrong += stats.verdict(stats.of_ratios(ratios)) != stats.SAME
    assert wrong <= 2, wrong


def test_against_goal():
    values = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
    assert stats.against_goal(values, 0.9, at_least=True) == "met"
    assert stats.against_goal(values, 1.25, at_least=True) == "met, close"
    assert stats.against_goal(values, 1.35, at_least=True) == "missed, close"
    assert stats.against_goal(values, 2, at_least=True) == "missed"
    assert stats.against_goal(values, 2, at_least=False) == "met"
    assert stats.against_goal([3.0] * 3, 2, at_least=True) == "met, too few runs"


def test_geometric_mean():
    assert stats.geometric_mean([1, 4, 16]) == pytest.approx(4)
