"""Summaries, intervals, and verdicts computed from them. Pure: numbers in, numbers out.

How a verdict is made. Allocators take turns, so the runs of one round are a pair that shares what the machine did at
that time; the ratio of a pair needs no steady machine. The interval of the median ratio is made of order statistics
(the sign test turned round): it holds the true median with at least the stated probability whatever the distribution
of the noise, also for 8 runs, where a bootstrap promises more than it keeps (docs/decisions/0016). A difference is
named only when the whole interval lies beyond SMALLEST: the layout of code and data alone moves programs that much.
All of this is about one session on one machine: what differs between sessions is in no interval.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.98  # of the interval that a verdict is computed from
SMALLEST = 0.01  # a ratio within 1 % of 1 is no difference
SUMMARY_LEVEL = 0.95  # of a summary's bootstrap interval
RESAMPLES = 5000
SAME = "no difference"
TOO_FEW = "too few runs"


@dataclass(frozen=True)
class Spread:
    n: int
    median: float
    mean: float
    stdev: float  # of the sample; 0 for one value
    minimum: float
    maximum: float

    @property
    def cv(self) -> float:
        """Coefficient of variation: standard deviation / mean."""
        return self.stdev / self.mean if self.mean else math.nan


@dataclass(frozen=True)
class Summary(Spread):
    low: float  # bootstrap interval of the median
    high: float


def bootstrap(values: Sequence[float], level: float = SUMMARY_LEVEL) -> tuple[float, float]:
    """The percentile bootstrap's interval of the median; the same for the same values, as its seed is fixed."""
    if len(values) < 2 or min(values) == max(values):
        return values[0], values[-1]
    import numpy

    drawn = numpy.asarray(values, dtype=float)[
        numpy.random.default_rng(1).integers(0, len(values), (RESAMPLES, len(values)))
    ]
    low, high = numpy.percentile(numpy.median(drawn, axis=-1), [50 * (1 - level), 50 * (1 + level)])
    return max(float(low), min(values)), min(float(high), max(values))  # a rounded mean may lie outside


def spread(values: Sequence[float]) -> Spread:
    return Spread(
        n=len(values),
        median=statistics.median(values),
        mean=statistics.fmean(values),
        stdev=statistics.stdev(values) if len(values) > 1 else 0.0,
        minimum=min(values),
        maximum=max(values),
    )


def summarize(values: Iterable[float]) -> Summary:
    values = [float(value) for value in values]
    low, high = bootstrap(values)
    return Summary(**vars(spread(values)), low=low, high=high)


def runs_needed(level: float = LEVEL) -> int:
    """The number of runs from which on an interval of the median has this level: their smallest and largest."""
    return math.ceil(1 - math.log2(1 - level))


def interval(values: Iterable[float], level: float = LEVEL) -> tuple[float, float]:
    """The narrowest order statistics that hold the median with this probability. With fewer than runs_needed(level)
    values nothing does: then -inf and inf."""
    ordered = sorted(map(float, values))
    n = len(ordered)
    if n < runs_needed(level):
        return -math.inf, math.inf
    # How many of n values lie below the median is binomial. `cut` values are left out on each side.
    cut, below = 0, 1
    while (below + math.comb(n, cut + 1)) / 2**n <= (1 - level) / 2:
        cut += 1
        below += math.comb(n, cut)
    return ordered[cut], ordered[n - 1 - cut]


@dataclass(frozen=True)
class Ratio:
    """The median of paired ratios, its interval at `level`, and the smallest and largest of the pairs."""

    n: int
    median: float
    low: float
    high: float
    minimum: float
    maximum: float
    level: float = LEVEL


def ratio(first: Mapping[int, float], second: Mapping[int, float], level: float = LEVEL) -> Ratio | None:
    """first / second, by the runs both have, which took turns. None if there is no pair. ratio(b, a) is the inverse."""
    runs = [run for run in sorted(first.keys() & second.keys()) if first[run] > 0 and second[run] > 0]
    return of_ratios((first[run] / second[run] for run in runs), level)


def of_ratios(ratios: Iterable[float], level: float = LEVEL) -> Ratio | None:
    ratios = list(ratios)
    if not ratios:
        return None
    # In logarithms, so that an even number of pairs has a median that inverts, too.
    logs = [math.log(value) for value in ratios]
    low, high = interval(logs, level)
    return Ratio(
        n=len(ratios),
        median=math.exp(statistics.median(logs)),
        low=math.exp(low),
        high=math.exp(high),
        minimum=min(ratios),
        maximum=max(ratios),
        level=level,
    )


@dataclass(frozen=True)
class Words:
    """What a ratio over 1, and one under 1, is called."""

    over: str
    under: str


SPEED = Words("faster", "slower")
TIME = Words("slower", "faster")
SIZE = Words("larger", "smaller")
COUNT = Words("more", "fewer")


def verdict(found: Ratio | None, words: Words = SPEED, smallest: float = SMALLEST) -> str:
    """One of the two words, or SAME, or TOO_FEW."""
    if found is None or not math.isfinite(found.high):
        return TOO_FEW
    if found.low > 1 + smallest:
        return words.over
    if found.high < 1 / (1 + smallest):
        return words.under
    return SAME


def geometric_mean(values: Iterable[float]) -> float:
    return statistics.geometric_mean(values)


def against_goal(values: Iterable[float], goal: float, at_least: bool) -> str:
    """met or missed by the median; "close" when the interval reaches to the other side of the goal; "too few runs" when
    there is no interval."""
    values = list(values)
    median = statistics.median(values)
    low, high = interval(values)
    met = median >= goal if at_least else median <= goal
    doubt = TOO_FEW if math.isinf(high) else "close" if low < goal < high else ""
    return ("met" if met else "missed") + (f", {doubt}" if doubt else "")
