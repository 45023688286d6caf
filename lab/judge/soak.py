"""What a soak says: one process, an epoch after the other. Pure.

The first epochs are left out (warm_up): memory is built up and caches fill. What is said of the rest holds for that
process on that machine; epochs of one process are no independent runs, so nothing here compares allocators.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lab.judge import latency, stats
from lab.judge.drift import Drift, drift

WARM_UP_MIN, WARM_UP_MAX, WARM_UP_SHARE = 5, 60, 0.1  # epochs, epochs, of all
LOW_PERCENTS = (1, 5, 10)
HIGH_PERCENTS = (90, 95, 99)
PROXY_PERCENTS = (50, 90, 95, 99, 99.9)
COUNTERS = ("faults_minor", "faults_major", "system_calls", "cpu_seconds")
CURVE_POINTS_MAX = 300
MIB = 1024  # KiB
MILLION = 1e6


@dataclass(frozen=True)
class Epochs:
    """Columns of equal length; None: not there. Counters are those of each epoch."""

    time_s: Sequence[float]  # since the start, at the end of the epoch
    ops_per_s: Sequence[float] | None = None
    rss_kb: Sequence[float] | None = None
    rss_peak_kb: Sequence[float] | None = None
    ops: Sequence[float] | None = None
    counters: Mapping[str, Sequence[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # how the columns were understood, if that is not plain

    def __len__(self) -> int:
        return len(self.time_s)


@dataclass(frozen=True)
class Spread(stats.Spread):
    percentiles: Mapping[float, float | None]  # None: too few epochs


@dataclass(frozen=True)
class Analysis:
    epochs: int  # that count
    warm_up: int  # epochs left out before them
    seconds: float  # from the first to the last epoch that counts
    throughput: Spread | None
    rate_drift: Drift | None  # of the throughput, as a share of its median
    proxy_ns: Mapping[float, float | None]  # percentiles of 1 / throughput
    slowest_ns: float | None
    rss_kb: Spread | None
    rss_first_kb: float | None  # median of the first tenth that counts
    rss_last_kb: float | None  # of the last tenth
    rss_peak_kb: float | None
    rss_drift: Drift | None  # KiB an hour
    rss_drift_late: Drift | None  # of the second half
    per_million_ops: Mapping[str, float]
    notes: tuple[str, ...]


def warm_up(epochs: int) -> int:
    """How many epochs are left out: a tenth, at least 5, at most 60, and never more than half."""
    return min(max(WARM_UP_MIN, int(epochs * WARM_UP_SHARE)), WARM_UP_MAX, epochs // 2)


def spread(values: Sequence[float], percents: Sequence[float] = (*LOW_PERCENTS, *HIGH_PERCENTS)) -> Spread:
    values = [float(value) for value in values]
    percentiles = {percent: latency.percentile(values, percent) for percent in percents}
    return Spread(**vars(stats.spread(values)), percentiles=percentiles)


def _per_million(epochs: Epochs, first: int) -> dict[str, float]:
    ops = sum(epochs.ops[first:]) if epochs.ops is not None else 0
    if not ops:
        return {}
    return {name: MILLION * sum(values[first:]) / ops for name, values in epochs.counters.items()}


def analyze(epochs: Epochs, left_out: int | None = None) -> Analysis:
    """ValueError if no epoch is left."""
    first = warm_up(len(epochs)) if left_out is None else left_out
    count = len(epochs) - first
    if count < 1:
        raise ValueError(f"of {len(epochs)} epochs none is left after {first} of warm-up")
    time_s = list(epochs.time_s[first:])
    rates = None if epochs.ops_per_s is None else list(epochs.ops_per_s[first:])
    rss = None if epochs.rss_kb is None else list(epochs.rss_kb[first:])
    found = None if rates is None else spread(rates)
    half, tenth = count // 2, max(count // 10, 1)
    return Analysis(
        epochs=count,
        warm_up=first,
        seconds=time_s[-1] - (epochs.time_s[first - 1] if first else time_s[0]),
        throughput=found,
        rate_drift=drift(time_s, [rate / found.median for rate in rates]) if found and found.median else None,
        proxy_ns=latency.epoch_percentiles(rates, PROXY_PERCENTS) if rates else {},
        slowest_ns=max(latency.of_epochs(rates)) if rates else None,
        rss_kb=None if rss is None else spread(rss, ()),
        rss_first_kb=None if rss is None else statistics.median(rss[:tenth]),
        rss_last_kb=None if rss is None else statistics.median(rss[-tenth:]),
        rss_peak_kb=max(epochs.rss_peak_kb or epochs.rss_kb) if rss is not None else None,
        rss_drift=None if rss is None else drift(time_s, rss),
        rss_drift_late=None if rss is None else drift(time_s[half:], rss[half:]),
        per_million_ops=_per_million(epochs, first),
        notes=epochs.notes,
    )


def curve(epochs: Epochs, points: int = CURVE_POINTS_MAX) -> tuple[list[float], list[float]]:
    """Times and RSS of at most so many epochs, evenly spread, the first and the last among them."""
    n = len(epochs)
    chosen = range(n) if n <= points else [round(i * (n - 1) / (points - 1)) for i in range(points)]
    return [round(epochs.time_s[i], 3) for i in chosen], [epochs.rss_kb[i] for i in chosen]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _drift_figures(prefix: str, found: Drift | None, scale: float) -> dict:
    if found is None:
        return {}
    names = (("", found.per_hour), ("_low", found.low), ("_high", found.high))
    return {f"{prefix}_verdict": found.verdict} | {
        f"{prefix}_per_hour{end}": _finite(value * scale) for end, value in names
    }


def figures(found: Analysis) -> dict:
    """Flat, for a stored row. rss_drift_mib_* in MiB an hour, rate_drift_* as a share of the median an hour."""
    result: dict = {"epochs": found.epochs, "warm_up_epochs": found.warm_up, "seconds": found.seconds}
    if rate := found.throughput:
        result |= {
            "ops_per_s": rate.median, "ops_per_s_mean": rate.mean, "ops_per_s_stdev": rate.stdev,
            "ops_per_s_cv": _finite(rate.cv), "ops_per_s_min": rate.minimum,
            "ops_per_s_max": rate.maximum,
        }  # fmt: skip
        result |= {f"ops_per_s_p{percent:g}": value for percent, value in rate.percentiles.items()}
        result |= {latency.key("epoch", percent): _finite(value) for percent, value in found.proxy_ns.items()}
        result["epoch_max_ns"] = _finite(found.slowest_ns)
    if rss := found.rss_kb:
        result |= {
            "rss_kb": rss.median, "rss_min_kb": rss.minimum, "rss_max_kb": rss.maximum,
            "rss_first_kb": found.rss_first_kb, "rss_last_kb": found.rss_last_kb, "rss_peak_kb": found.rss_peak_kb,
        }  # fmt: skip
    result |= _drift_figures("rate_drift", found.rate_drift, 1.0)
    result |= _drift_figures("rss_drift_mib", found.rss_drift, 1 / MIB)
    result |= _drift_figures("rss_drift_late_mib", found.rss_drift_late, 1 / MIB)
    return result | {f"{name}_per_million_ops": value for name, value in found.per_million_ops.items()}
