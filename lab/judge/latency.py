"""Latencies: the histograms of bench/latency.c, and the proxy that epochs of a soak give. Pure.

A percentile is given only if at least BEYOND_MIN samples lie beyond it: below that it is the luck of a few samples,
and is None here, "too few" in tables. p99.999 needs a million samples. The largest value is always given; it is no
percentile and grows with the number of samples.

The cost of the clock is part of every value. It stands beside them as the figures of empty timed pairs ("timer") and
is not taken off: it overlaps with the call that is timed, so a difference of percentiles is no percentile.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PERCENTILES = (50, 90, 99, 99.9, 99.99, 99.999)
BEYOND_MIN = 10
PARTS = ("malloc", "free", "timer")
CLOCKS_APART = 0.01  # of ticks a nanosecond: runs further apart are not of one machine
NS_PER_S = 1e9


def enough(n: int, percent: float) -> bool:
    """Do BEYOND_MIN of n samples lie beyond the percentile, on its rarer side?"""
    rare = min(percent, 100 - percent) / 100
    return n * rare >= BEYOND_MIN * (1 - 1e-9)


def name(percent: float) -> str:
    """p99.9"""
    return f"p{percent:g}"


def key(part: str, percent: float) -> str:
    """malloc_p99_9_ns"""
    return f"{part}_{name(percent)}_ns".replace(".", "_")


@dataclass(frozen=True)
class Latency:
    """Histograms (hdrh.histogram.HdrHistogram, in ticks) of one run, or of several together."""

    source: str  # the clock's instruction
    ticks_per_ns: float
    parts: Mapping[str, object]

    def n(self, part: str) -> int:
        return self.parts[part].get_total_count()

    def max_ns(self, part: str) -> float:
        return self.parts[part].max_value / self.ticks_per_ns

    def percentiles_ns(self, part: str, percents: Sequence[float] = PERCENTILES) -> dict[float, float | None]:
        """The upper end of the bucket that holds it; None: too few samples. A call looks at every bucket."""
        allowed = [percent for percent in percents if enough(self.n(part), percent)]
        found = self.parts[part].get_percentile_to_value_dict(allowed)
        top = self.parts[part].max_value
        return {p: min(found[p], top) / self.ticks_per_ns if p in found else None for p in percents}

    @property
    def step_ns(self) -> float:
        """What the clock moves on by: all short values are multiples of it."""
        histograms = self.parts.values()
        single = next(iter(histograms)).sub_bucket_count  # below this a bucket is one value
        seen = {value for histogram in histograms for value in range(1, single) if histogram.get_count_at_index(value)}
        return (math.gcd(*seen) or 1) / self.ticks_per_ns


def _histogram(layout: Mapping, counts: Mapping):
    from hdrh.histogram import HdrHistogram

    made = HdrHistogram(layout["lowest"], layout["highest"], layout["significant_figures"])
    for slot, count in counts["counts"]:
        if not (0 <= slot < made.counts_len and count > 0):
            raise ValueError(f"a latency histogram has {count} in slot {slot} of {made.counts_len}")
        made.record_value(made.get_value_from_index(slot), count)
    if made.get_total_count() != counts["count"]:
        raise ValueError(f"a latency histogram holds {made.get_total_count()} of {counts['count']} values")
    if made.get_total_count():
        made.min_value, made.max_value = counts["min"], counts["max"]  # exact, unlike their buckets
    return made


def load(result: Mapping) -> Latency:
    """Of what bench/latency printed, or of a stored row's result. ValueError if there is no sound histogram in it."""
    from hdrh.histogram import HdrHistogram

    try:
        if "latency" in result:
            raw = result["latency"]
            return Latency(raw["source"], raw["ticks_per_ns"], {part: _histogram(raw, raw[part]) for part in PARTS})
        parts = {}
        for part in PARTS:
            parts[part] = HdrHistogram.decode(result[f"latency_{part}"])
            parts[part].max_value = result[f"latency_{part}_max"]
        return Latency(result["latency_source"], result["latency_ticks_per_ns"], parts)
    except KeyError as error:
        raise ValueError(f"no latency histograms: {error} is missing") from None


def merge(runs: Sequence[Latency]) -> Latency:
    """All samples of runs on one machine."""
    from hdrh.histogram import HdrHistogram

    rates = [run.ticks_per_ns for run in runs]
    if len({run.source for run in runs}) > 1 or max(rates) / min(rates) > 1 + CLOCKS_APART:
        raise ValueError("runs on different clocks cannot be merged")
    parts = {}
    for part in PARTS:
        one = runs[0].parts[part]
        parts[part] = HdrHistogram(one.lowest_trackable_value, one.highest_trackable_value, one.significant_figures)
        for run in runs:
            parts[part].add(run.parts[part])
        parts[part].max_value = max(run.parts[part].max_value for run in runs)  # exact, which add() is not
    return Latency(runs[0].source, sum(rates) / len(rates), parts)


def figures(result: Mapping) -> dict:
    """What a row stores of a run of bench/latency in place of its field "latency": percentiles (None: too few samples),
    largest values and numbers of samples, and the histograms themselves in HdrHistogram's own text form."""
    run = load(result)
    found: dict = {"latency_source": run.source, "latency_ticks_per_ns": run.ticks_per_ns, "timer_step_ns": run.step_ns}
    for part in PARTS:
        found |= {key(part, percent): value for percent, value in run.percentiles_ns(part).items()}
        found |= {f"{part}_max_ns": run.max_ns(part), f"{part}_samples": run.n(part)}
        found |= {
            f"latency_{part}": run.parts[part].encode().decode(),
            f"latency_{part}_max": run.parts[part].max_value,
        }
    return found


# --- the proxy of epochs ------------------------------------------------------------------------------


def percentile(values: Sequence[float], percent: float) -> float | None:
    """A value that was observed, of which so many percent are not larger; None: too few samples."""
    import numpy

    if not enough(len(values), percent):
        return None
    return float(numpy.percentile(values, percent, method="inverted_cdf"))


def of_epochs(ops_per_s: Iterable[float]) -> list[float]:
    """Nanoseconds an operation of each epoch: its latency as far as an epoch shows one. Percentiles come after this
    step: the p99 of 1/x is 1 / (the p1 of x), so the slow tail is the low end of the throughput."""
    return [NS_PER_S / rate if rate > 0 else math.inf for rate in ops_per_s]


def epoch_percentiles(ops_per_s: Iterable[float], percents: Iterable[float] = PERCENTILES) -> dict[float, float | None]:
    values = of_epochs(ops_per_s)
    return {percent: percentile(values, percent) for percent in percents}
