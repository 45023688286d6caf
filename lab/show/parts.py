"""The parts of a scorecard as plain data: workloads, goals, sizes, profiles, sessions, traces."""

import math
import statistics
from collections.abc import Iterable, Mapping

from lab.judge import outcome as outcomes
from lab.judge import stats
from lab.judge.outcome import RATE, Outcome, Series
from lab.run import machine
from lab.run.allocators import SUBJECT
from lab.run.workloads import ROWS, SIZES_LARGE, SIZES_SMALL
from lab.show.figures import Figures, is_number, is_peer, profile_names
from lab.show.tables import by_rate, middle
from lab.show.tail import latencies
from lab.store.rows import Row


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def ratio_data(found: stats.Ratio | None, words: stats.Words) -> dict | None:
    if found is None:
        return None
    return {
        "median": found.median, "low": finite(found.low), "high": finite(found.high), "min": found.minimum,
        "max": found.maximum, "n": found.n, "verdict": stats.verdict(found, words),
    }  # fmt: skip


def entry(figures: Figures, outcome: Outcome, series: Series, key: str) -> dict:
    work, subject = outcome.work, outcome.subject
    rate = stats.summarize(series.values(RATE).values())
    peak, row = series.values(key), figures.row(work, series.name)
    calls, operations = middle(series, "system_calls"), middle(series, "operations")
    shows = ROWS[work].shows if work in ROWS else ()
    own = outcome.of(subject)
    return {
        "name": series.name, "is_subject": series.name == subject, "is_peer": series.is_peer,
        "version": row.version, "library": row.library, "settings": row.settings, "command": series.command,
        "is_other_command": bool(own) and series.command != own.command, "n": rate.n,
        "rate": {"median": rate.median, "low": rate.low, "high": rate.high, "mean": rate.mean, "stdev": rate.stdev,
                 "cv": finite(rate.cv), "min": rate.minimum, "max": rate.maximum,
                 "runs": [[run, value] for run, value in series.values(RATE).items()]},
        "rate_ratio": ratio_data(figures.ratio(work, subject, series.name), stats.SPEED),
        "peak_kb": middle(series, key), "peak_kb_min": min(peak.values(), default=None),
        "peak_kb_max": max(peak.values(), default=None),
        "peak_ratio": ratio_data(figures.ratio(work, subject, series.name, key), stats.SIZE),
        "end_kb": middle(series, "rss_kb"),
        "of_live": middle(series, "peak_over_live") or middle(series, "rss_over_live"),
        "faults": middle(series, "faults_minor"), "cpu_seconds": middle(series, "cpu_seconds"),
        "system_calls": calls,
        "system_calls_per_1000": 1000 * calls / operations if calls is not None and operations else None,
        "shows": {name: middle(series, name) for name in shows},
    }  # fmt: skip


def workload(figures: Figures, work: str) -> dict | None:
    outcome, row = figures.outcomes[work], figures.last[work]
    key = figures.peak_key(work)
    measured = by_rate(outcome)
    if not measured:
        return None
    best, leanest = figures.fastest(work), figures.leanest(work)
    return {
        "name": work, "group": figures.group(work), "command": (outcome.of(outcome.subject) or measured[0]).command,
        "subject": outcome.subject, "peers_missing": figures.peers_missing(work),
        "is_standard": figures.is_standard(work), "is_rate_compared": figures.is_compared(work),
        "is_size_compared": figures.is_compared(work, key), "session": row.session, "load": _load(measured, figures),
        "cpu_pinned": row.cpu_pinned, "clock": row.clock, "runs": max(len(series.results) for series in measured),
        "best_peer": best, "leanest_peer": leanest,
        "rate_ratio": ratio_data(best and figures.ratio(work, outcome.subject, best), stats.SPEED),
        "peak_ratio": ratio_data(leanest and figures.ratio(work, outcome.subject, leanest, key), stats.SIZE),
        "fastest": sorted(figures.top(work, [series.name for series in measured if not is_other(outcome, series)])),
        "allocators": [entry(figures, outcome, series, key) for series in measured],
    }  # fmt: skip


def _load(measured: list[Series], figures: Figures) -> list[float]:
    """The machine's load average when the runs began: smallest, median, largest."""
    loads = [load for series in measured for load in figures.loads(series)]
    return [min(loads), statistics.median(loads), max(loads)]


def is_other(outcome: Outcome, series: Series) -> bool:
    """Another program than the subject's."""
    own = outcome.of(outcome.subject)
    return own is not None and own.command != series.command


def goals(figures: Figures) -> list[dict]:
    return [
        {"text": goal.text, "works": list(goal.rows), "reached": statistics.median(values) if values else None,
         "low": min(values, default=None), "high": max(values, default=None), "n": len(values), "goal": goal.least,
         "aim": goal.aim, "at_least": goal.at_least, "unit": goal.unit, "verdict": word}
        for goal, values, word in figures.judged
    ]  # fmt: skip


def sizes(figures: Figures) -> dict | None:
    """The rate of each allocator at fixed sizes, of glibc's."""
    sizes = [size for size in SIZES_SMALL + SIZES_LARGE if f"fixed-{size}" in figures.outcomes]
    names = dict.fromkeys(series.name for size in sizes for series in figures.outcomes[f"fixed-{size}"].series
                          if series.name != "glibc")  # fmt: skip
    names = [name for name in names if any(figures.ratio(f"fixed-{size}", name, "glibc") for size in sizes)]
    table = {
        name: [ratio_data(figures.ratio(f"fixed-{size}", name, "glibc"), stats.SPEED) for size in sizes]
        for name in names
    }
    return {"sizes": sizes, "of_glibc": table} if names else None


def profiles(figures: Figures) -> list[dict]:
    """Rate and peak RSS of the presets where several were measured: of glibc's if that took part."""
    found = []
    for work, measured in figures.profiled.items():
        key = figures.peak_key(work)
        for profile, name in profile_names(measured).items():
            series = measured.of(name)
            found.append({
                "work": work, "profile": profile, "series": name, "session": figures.row_of(series).session,
                "rate": middle(series, RATE),
                "rate_of_glibc": ratio_data(measured.ratio(name, "glibc"), stats.SPEED),
                "peak_kb": middle(series, key),
                "peak_of_glibc": ratio_data(measured.ratio(name, "glibc", key), stats.SIZE),
                "calls_per_100m": middle(series, "calls_per_100m"),
            })  # fmt: skip
    return found


def profile_tails(figures: Figures) -> list[dict]:
    """Tail latencies of the presets, of the workloads that measured them with several."""
    profile = {work: {name: profile for profile, name in profile_names(measured).items()}
               for work, measured in figures.profiled.items()}  # fmt: skip
    return [tail | {"profile": profile[tail["work"]][tail["allocator"]]} for tail in latencies(figures.profiled)
            if tail["allocator"] in profile[tail["work"]]]  # fmt: skip


def profile_drifts(soaks: Iterable[Mapping]) -> list[dict]:
    """The processes over time whose preset was set, and hakmem without a setting beside them."""
    soaks = list(soaks)
    several = {soak["work"] for soak in soaks if soak["allocator"].startswith(f"{SUBJECT}-")}
    return [{**soak, "profile": soak["allocator"].removeprefix(f"{SUBJECT}-").replace(SUBJECT, "balanced")}
            for soak in soaks if soak["work"] in several and soak["allocator"].startswith(SUBJECT)]  # fmt: skip


def sessions(figures: Figures) -> list[dict]:
    """Where the counted workloads were measured: one entry a session, the one with most of them first."""
    found: dict[str, dict] = {}
    for work in figures.works:
        row = figures.last[work]
        entry = found.setdefault(row.session, {
            "session": row.session, "line": machine.line(row), "machine": row.machine.model_dump(), "commit": row.commit,
            "flags": row.flags, "time": row.time.isoformat(), "date": row.time.date().isoformat(), "works": [],
        })  # fmt: skip
        entry["works"].append(work)
    return sorted(found.values(), key=lambda entry: -len(entry["works"]))


def disagreements(figures: Figures) -> list[dict]:
    return [
        {"work": found.work, "key": found.key, "peer": found.peer,
         "said": [{"session": row.session, "date": row.time.date().isoformat(), "commit": row.commit,
                   "ratio": ratio_data(ratio, stats.SPEED if found.key == "rate" else stats.SIZE), "verdict": word}
                  for row, ratio, word in found.said]}
        for found in figures.disagreements
    ]  # fmt: skip


# --- traces -------------------------------------------------------------------------------------------

# Of a run of `hak replay`: the share of the trace, what lives, what is resident without the replay's own tables.
CURVE = ("curve_progress", "curve_live_kb", "curve_rss_kb")
LIVE_LEAST = 0.01  # of the peak: where less lives, the ratio is that of almost nothing


def _curve(series: Series) -> list[list[float]]:
    """(share of the trace, heap over live bytes) of the last run that has it."""
    for result in reversed(list(series.results.values())):
        columns = [result.get(key) for key in CURVE]
        if all(isinstance(column, list) and all(map(is_number, column)) for column in columns):
            least = max(columns[1], default=0) * LIVE_LEAST
            return [[share, heap / live] for share, live, heap in zip(*columns, strict=False) if live > least]
    return []


def traces(rows: Iterable[Row]) -> list[dict]:
    """Of each trace that was replayed, the latest session: time and memory of each allocator."""
    found = []
    for work, outcome in outcomes.from_rows([row for row in rows if row.kind == "replay"], SUBJECT, is_peer).items():
        for series in outcome.series:
            found.append({
                "work": work, "allocator": series.name, "n": len(series.results), "is_subject": series.name == SUBJECT,
                "seconds": middle(series, "seconds"), "faults": middle(series, "faults_minor"),
                "rate_ratio": ratio_data(outcome.ratio(SUBJECT, series.name), stats.SPEED),
                "heap_peak_kb": middle(series, "heap_peak_kb"), "peak_over_live": middle(series, "peak_over_live"),
                "peak_ratio": ratio_data(outcome.ratio(SUBJECT, series.name, "heap_peak_kb"), stats.SIZE),
                "mean_over_live": middle(series, "mean_over_live"), "end_kb": middle(series, "heap_kb"),
                "curve": _curve(series),
            })  # fmt: skip
    return found
