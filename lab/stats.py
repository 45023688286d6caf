"""Medians, intervals, and verdicts computed from them. Pure: numbers in, numbers out."""

import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    n: int


def spread(values):
    values = list(values)
    return Spread(statistics.median(values), min(values), max(values), len(values)) if values else None


def interval(values, error=0.05):
    """The narrowest order statistics that hold the median with probability 1 - error; all there is if n < 6."""
    values = sorted(values)
    n, out, tail = len(values), 0, 0.0
    while out < (n - 1) // 2:
        tail += math.comb(n, out) / 2.0 ** n
        if 2 * tail > error:
            break
        out += 1
    skip = max(out - 1, 0)
    return values[skip], values[n - 1 - skip]


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(math.log(value) for value in values) / len(values))


def verdict(values, goal, at_least):
    """met or missed by the median; "close" when the interval reaches to the other side of the goal."""
    median = statistics.median(values)
    low, high = interval(values)
    met = median >= goal if at_least else median <= goal
    return ("met" if met else "missed") + (", close" if low < goal < high else "")
