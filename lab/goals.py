"""The goals: what is to be reached on which row. Verdicts are computed from the runs."""

from dataclasses import dataclass
from typing import Callable, Optional

from lab import stats, workloads


@dataclass(frozen=True)
class Goal:
    text: str
    rows: tuple
    measure: Callable  # outcomes of the rows -> {run: value}
    least: float  # the goal
    aim: Optional[float] = None
    at_least: bool = True  # or at most
    unit: str = ""


def _subject_rate(against):
    """Rate of the subject against a named allocator, or the best peer of the row."""
    def measure(outcome):
        return outcome.rate_ratio(outcome.subject, outcome.best_peer() if against == "best" else against)
    return measure


def _variant_rate(first, second):
    return lambda outcome: outcome.rate_ratio(first, second)


def _mean_rate(*outcomes):
    ratios = [_subject_rate("best")(outcome) for outcome in outcomes]
    runs = set.intersection(*(set(ratio) for ratio in ratios))
    return {run: stats.geometric_mean(ratio[run] for ratio in ratios) for run in sorted(runs)}


def _above_glibc(key):
    return lambda outcome: outcome.pairs(outcome.subject, "glibc", key, lambda x, y: x - y)


def _own(key):
    return lambda outcome: outcome.pairs(outcome.subject, outcome.subject, key, lambda x, _: x)


def _end_rss_of_glibc(outcome):
    return outcome.pairs(outcome.subject, "glibc", "rss_over_live", lambda x, y: x / y)


def _goals():
    best = _subject_rate("best")
    yield Goal("mixed, preloaded / best", ("mixed",), best, 1.07, 1.20)
    yield Goal("mixed, FAST build / mimalloc", ("mixed",), _variant_rate("fast", "mimalloc"), 1.25, 1.35)
    yield Goal("mixed, FAST build / ideal loop", ("mixed",), _variant_rate("fast", "ideal"), 0.93, 0.98)
    for size in workloads.SIZES_SMALL:
        yield Goal(f"fixed {size} B / best", (f"fixed-{size}",), best, 0.97, 1.1)
    yield Goal("fixed 16..512 B, geometric mean / best", tuple(f"fixed-{size}" for size in workloads.SIZES_SMALL),
               _mean_rate, 1.03, 1.1)
    for size in workloads.SIZES_LARGE:
        yield Goal(f"fixed {size // 1024} KiB / best", (f"fixed-{size}",), best, 1.03, 1.3)
        yield Goal(f"fixed {size // 1024} KiB / mimalloc", (f"fixed-{size}",), _subject_rate("mimalloc"), 1.5)
    for millions in (2, 4):
        yield Goal(f"churn, {millions}M live blocks / best", (f"churn-{millions}m",), best, 1.2, 2)
    for name, *_ in workloads.BATCHES:
        yield Goal(f"batch of {name} / best", (f"batch-{name}",), best, 1.4, 2)
    for threads, chunks in workloads.LARSON:
        row = f"larson-{threads}-{chunks}"
        yield Goal(f"larson, threads {threads}, chunks {chunks} / best", (row,), best, 1.1, 1.4)
    for producers, consumers in workloads.PAIRS:
        yield Goal(f"handoff {producers}-{consumers} / best", (f"handoff-{producers}-{consumers}",), best, 2, 3.5)
    yield Goal("threads / best", ("threads",), best, 1.15, 2)
    yield Goal("shift / best", ("shift",), best, 1.25, 1.5)
    yield Goal("shift, RSS at the end / glibc", ("shift",), _end_rss_of_glibc, 1.25, 1.1, at_least=False)
    yield Goal("free-only consumer / best", ("freeonly",), best, 1.4, 2)
    yield Goal("free-only consumer, peak RSS / live", ("freeonly",), _own("peak_over_live"), 1.1, 1.03,
               at_least=False)
    yield Goal("nothing, extra RSS over glibc", ("startup",), _above_glibc("child_rss_peak_kb"), 256, 128,
               at_least=False, unit="KiB")
    yield Goal("nothing, extra time over glibc", ("startup",), _above_glibc("child_ms"), 1, at_least=False, unit="ms")
    yield Goal("mixed, extra RSS over glibc", ("mixed",), _above_glibc("rss_peak_kb"), 512, at_least=False, unit="KiB")


GOALS = tuple(_goals())
ROW_NAMES = tuple(dict.fromkeys(name for goal in GOALS for name in goal.rows))


def judge(goal, outcomes):
    """(spread, verdict) of a goal; (None, why there is none) when its rows were not measured."""
    found = [outcomes[name] for name in goal.rows if name in outcomes]
    values = list(goal.measure(*found).values()) if len(found) == len(goal.rows) else []
    if not values:
        return None, "not measured"
    word = stats.verdict(values, goal.least, goal.at_least)
    if goal.aim is not None and stats.verdict(values, goal.aim, goal.at_least) == "met":
        word += ", aim reached"
    return stats.spread(values), word
