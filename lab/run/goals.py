"""The goals: what is to be reached on which row. Verdicts are computed from the runs."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from lab.judge import stats
from lab.judge.outcome import RATE
from lab.run import apps, workloads
from lab.run.allocators import PROFILES

LEAN_KB = 3906  # 4 MB


@dataclass(frozen=True)
class Goal:
    text: str
    rows: tuple
    measure: Callable  # outcomes of the rows -> {run: value}
    least: float  # the goal
    aim: float | None = None
    at_least: bool = True  # or at most
    unit: str = ""
    is_partial: bool = False  # over the rows that were measured: not every program is installed everywhere


def _of_best(measure):
    """Marks what compares with the best of all peers."""
    measure.is_of_best = True
    return measure


def _to(second, key=RATE, first=None):
    """Of the subject, or of `first`, to a named allocator or variant."""
    return lambda outcome: outcome.quotients(first or outcome.subject, second, key)


def _to_best(key=RATE):
    """A rate, to the peer that has the highest."""
    return _of_best(lambda outcome: outcome.quotients(outcome.subject, outcome.best_peer(key), key))


def _joined(join, ratios):
    """join() of the ratios of each run that all have."""
    runs = set.intersection(*map(set, ratios)) if ratios else ()
    return {run: join([ratio[run] for ratio in ratios]) for run in sorted(runs)}


@_of_best
def _mean_rate(*outcomes):
    return _joined(stats.geometric_mean, [_to_best()(outcome) for outcome in outcomes])


def _above_glibc(key):
    return lambda outcome: outcome.pairs(outcome.subject, "glibc", key, lambda x, y: x - y)


def _own(key, name=None):
    return lambda outcome: outcome.pairs(name or outcome.subject, name or outcome.subject, key, lambda x, _: x)


def _of_lowest(key, *names):
    """Against the lowest of the named allocators in the same run; all of them must have finished it."""
    return lambda outcome: _joined(max, [outcome.quotients(outcome.subject, name, key) for name in names])


def _over_rows(join, ratio_of_row):
    def measure(*outcomes):
        return _joined(join, [ratio for outcome in outcomes if (ratio := ratio_of_row(outcome))])

    return _of_best(measure) if hasattr(ratio_of_row, "is_of_best") else measure


def _of_least_peer(key, without=()):
    """Against the peer that has the lowest."""

    def measure(outcome):
        least = outcome.least_peer(key, without)
        return outcome.quotients(outcome.subject, least, key) if least else {}

    return _of_best(measure)


_most = functools.partial(Goal, at_least=False)


def _goals():
    best = _to_best()
    yield Goal("mixed, preloaded / best", ("mixed",), best, 1.07, 1.20)
    yield Goal("mixed, FAST build / mimalloc", ("mixed",), _to("mimalloc", first="fast"), 1.25, 1.35)
    yield Goal("mixed, FAST build / ideal loop", ("mixed",), _to("ideal", first="fast"), 0.93, 0.98)
    for size in workloads.SIZES_SMALL:
        yield Goal(f"fixed {size} B / best", (f"fixed-{size}",), best, 0.97, 1.1)
    yield Goal("fixed 16..512 B, geometric mean / best", tuple(f"fixed-{size}" for size in workloads.SIZES_SMALL),
               _mean_rate, 1.03, 1.1)  # fmt: skip
    for size in workloads.SIZES_LARGE:
        yield Goal(f"fixed {size // 1024} KiB / best", (f"fixed-{size}",), best, 1.03, 1.3)
        yield Goal(f"fixed {size // 1024} KiB / mimalloc", (f"fixed-{size}",), _to("mimalloc"), 1.5)
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
    yield _most("shift, RSS at the end / glibc", ("shift",), _to("glibc", "rss_over_live"), 1.15, 1.1)
    yield _most("shift, RSS at the end / lowest of the other three", ("shift",),
                _of_lowest("rss_over_live", "mimalloc", "jemalloc", "tcmalloc"), 1)  # fmt: skip
    drawn = tuple(f"drawn-{draw}" for _, draw in workloads.DRAWS)
    yield Goal("drawn, geometric mean / best", drawn, _mean_rate, 1)
    yield Goal("free-only consumer / best", ("freeonly",), best, 1.4, 2)
    yield _most("free-only consumer, peak RSS / live", ("freeonly",), _own("peak_over_live"), 1.1, 1.03)
    yield _most("nothing, extra RSS over glibc", ("startup",), _above_glibc("child_rss_peak_kb"), 256, 128, unit="KiB")
    yield _most("nothing, extra time over glibc", ("startup",), _above_glibc("child_ms"), 1, unit="ms")
    yield _most("mixed, extra RSS over glibc", ("mixed",), _above_glibc("rss_peak_kb"), 512, unit="KiB")
    for name, key, most, aim in (("nothing", "child_rss_peak_kb", 256, 96), ("mixed", "rss_peak_kb", 512, 192)):
        text = f"{name}, huge pages always, extra RSS over glibc"
        yield _most(text, (f"thp-always-{name}",), _above_glibc(key), most, aim, unit="KiB")
    yield from _memory_goals(best)


def _memory_goals(best):
    yield Goal("vm / best", ("vm",), best, 1)
    yield Goal("vm, rounds after the first / best", ("vm",), _to_best("later_ops_per_s"), 1)
    yield _most("vm, page faults after the first round", ("vm",), _own("faults_after_first"), 2)
    yield Goal("cold_churn / best", ("cold_churn",), best, 1)
    yield Goal("large_mix / best", ("large_mix",), best, 1)
    for name, _ in workloads.GROWTHS:
        yield Goal(f"realloc to 1 GiB, {name} / best", (f"realloc-{name}",), best, 1)
    yield Goal("idle, given back after 10 s / releasable", ("idle",), _own("returned_share_10s"), 0.9)
    yield _most("prefork, extra PSS of a child / glibc", ("prefork",), _to("glibc", "extra_pss_kb"), 1.1)
    yield _most("vmas, most mappings", ("vmas",), _own("vmas_most"), 999)
    yield from _app_goals()
    yield _most("lean, mixed: peak RSS", ("profiles",), _own("rss_peak_kb", "lean"), LEAN_KB, unit="KiB")
    yield Goal("lean, mixed / speed", ("profiles",), _to("speed", first="lean"), 0.9)
    yield Goal(
        "heaps, hak_heap_malloc and hak_heap_free / malloc and free", ("heaps",), _to("hakmem", first="heap"), 0.9
    )
    yield _most("heaps, end of a million blocks", ("heaps",), _own("destroy_ms", "heap"), 1, unit="ms")
    for name, least in (("live", 0.995), ("profile-2048", 0.995), ("profile-512", 0.99)):
        yield Goal(f"{name}, mixed / off", ("inside",), _to("off", first=name), least)
    for profile in PROFILES:
        yield _most(f"{profile}, system calls in 10^8 operations", ("profiles",), _own("calls_per_100m", profile), 5)


def _app_goals():
    programs = tuple(f"app-{name}" for name, app in apps.APPS.items() if not app.is_phases)
    for text, join, ratio, most, aim in (
        ("peak RSS, geometric mean / glibc", stats.geometric_mean, _to("glibc", "rss_peak_kb"), 0.98, 0.92),
        ("peak RSS, worst / glibc", max, _to("glibc", "rss_peak_kb"), 1.08, 1),
        ("peak RSS, geometric mean / leanest peer but glibc", stats.geometric_mean,
         _of_least_peer("rss_peak_kb", without=("glibc",)), 0.97, 0.9),
        ("CPU, geometric mean / fastest peer of each", stats.geometric_mean, _of_least_peer("cpu_seconds"), 1, 0.97),
    ):  # fmt: skip
        yield _most(f"apps, {text}", programs, _over_rows(join, ratio), most, aim, is_partial=True)
    for name in (name for name, app in apps.APPS.items() if app.is_phases):
        for word, key, most, aim in (
            ("CPU", "cpu_seconds", 1, 0.9),
            ("peak RSS", "rss_peak_kb", 1.06, 1),
            ("faults", "faults_minor", 1.2, 0.5),
        ):
            yield _most(f"phases, {name}: {word} / glibc", (f"app-{name}",), _to("glibc", key), most, aim)


GOALS = tuple(_goals())
# Rows that switch a setting of the machine are run only where they are named.
ROW_NAMES = tuple(dict.fromkeys(name for goal in GOALS for name in goal.rows if not workloads.ROWS[name].huge_pages))


def judge(goal, outcomes):
    """(values, verdict) of a goal; ([], why there is none) when its rows were not measured. A goal that is missed against
    the best of some peers is missed against the best of all."""
    found = [outcomes[name] for name in goal.rows if name in outcomes]
    is_measured = bool(found) if goal.is_partial else len(found) == len(goal.rows)
    values = list(goal.measure(*found).values()) if is_measured else []
    word = stats.against_goal(values, goal.least, goal.at_least) if values else ""
    is_of_some = hasattr(goal.measure, "is_of_best") and any(outcome.missing_peers for outcome in found)
    if not values or (is_of_some and not word.startswith("missed")):
        return [], "not measured"
    if goal.aim is not None and stats.against_goal(values, goal.aim, goal.at_least) == "met":
        word += ", aim reached"
    return values, word
