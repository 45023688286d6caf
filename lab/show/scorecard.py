"""The scorecard: stored rows as one page for the browser, as Markdown, and as JSON.

    found = collect(rows, soaks)    what is said, as plain data: the JSON file
    render(found)                   {file name: text} of the three files
    write(texts, folder)            all of them or none

Verdicts are those of lab/judge/stats.py and drift.py; the templates only place them.
"""

import datetime
import json
import math
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from lab.judge import stats
from lab.judge.outcome import RATE, Outcome, Series
from lab.run import goals, machine
from lab.run.allocators import PEERS, SUBJECT
from lab.run.workloads import ROWS, SIZES_LARGE, SIZES_SMALL
from lab.show.figures import Figures, middle
from lab.show.tail import latencies, soak_of
from lab.store.rows import Row

SCHEMA = 1
COMMAND = "hak bench all apps --json lab/results/FILE.jsonl"
# The order, and with it the colour, of those that are often there; others follow.
FIRST = (
    "hakmem",
    "glibc",
    "mimalloc",
    "jemalloc",
    "tcmalloc",
    "hakmem-speed",
    "hakmem-lean",
    "mimalloc2",
    "fast",
    "ideal",
)

WORDS = (stats.SPEED.over, stats.SIZE.under, stats.SAME, stats.SPEED.under, stats.SIZE.over, stats.TOO_FEW)


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def ratio_data(found: stats.Ratio | None, words: stats.Words) -> dict | None:
    if found is None:
        return None
    return {
        "median": found.median, "low": finite(found.low), "high": finite(found.high), "min": found.minimum,
        "max": found.maximum, "n": found.n, "verdict": stats.verdict(found, words),
    }  # fmt: skip


def _series(figures: Figures, outcome: Outcome, series: Series, key: str) -> dict:
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


def _workload(figures: Figures, work: str) -> dict | None:
    outcome, row = figures.outcomes[work], figures.last[work]
    key = figures.peak_key(work)
    measured = [series for series in outcome.series if series.values(RATE)]
    if not measured:
        return None
    order = sorted(measured, key=lambda series: (series.name != outcome.subject, -middle(series, RATE)))
    best, leanest = figures.fastest(work), figures.leanest(work)
    return {
        "name": work, "group": figures.group(work), "command": (outcome.of(outcome.subject) or order[0]).command,
        "subject": outcome.subject, "is_standard": figures.is_standard(work), "is_compared": figures.is_compared(work), "session": row.session,
        "cpu_pinned": row.cpu_pinned, "clock": row.clock, "runs": max(len(series.results) for series in measured),
        "best_peer": best, "leanest_peer": leanest,
        "rate_ratio": ratio_data(best and figures.ratio(work, outcome.subject, best), stats.SPEED),
        "peak_ratio": ratio_data(leanest and figures.ratio(work, outcome.subject, leanest, key), stats.SIZE),
        "fastest": sorted(figures.top(work, [series.name for series in measured if not is_other(outcome, series)])),
        "allocators": [_series(figures, outcome, series, key) for series in order],
    }  # fmt: skip


def is_other(outcome: Outcome, series: Series) -> bool:
    """Another program than the subject's."""
    own = outcome.of(outcome.subject)
    return own is not None and own.command != series.command


def _goals(figures: Figures) -> list[dict]:
    return [
        {"text": goal.text, "works": list(goal.rows), "reached": stats.statistics.median(values) if values else None,
         "low": min(values, default=None), "high": max(values, default=None), "n": len(values), "goal": goal.least,
         "aim": goal.aim, "at_least": goal.at_least, "unit": goal.unit, "verdict": word}
        for goal, values, word in figures.judged
    ]  # fmt: skip


def _sizes(figures: Figures) -> dict | None:
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


def _profiles(figures: Figures) -> list[dict]:
    """Rate and peak RSS of the profiles where several were measured: of glibc's if that took part."""
    found = []
    for work in figures.works:
        names, key = figures.profile_names(work), figures.peak_key(work)
        for profile, name in names.items():
            series = figures.outcomes[work].of(name)
            found.append({
                "work": work, "profile": profile, "series": name, "rate": middle(series, RATE),
                "rate_of_glibc": ratio_data(figures.ratio(work, name, "glibc"), stats.SPEED),
                "peak_kb": middle(series, key),
                "peak_of_glibc": ratio_data(figures.ratio(work, name, "glibc", key), stats.SIZE),
                "calls_per_100m": middle(series, "calls_per_100m"),
            })  # fmt: skip
    return found


def _sessions(figures: Figures) -> list[dict]:
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


def _summary(found: Mapping) -> dict:
    """How often which verdict stands, against the best peer of each workload."""

    compared = [work for work in found["workloads"] if work["is_compared"]]

    def count(key):
        words = [work[key]["verdict"] for work in compared if work[key]]
        return {word: words.count(word) for word in WORDS if word in words}

    medians = [work["rate_ratio"]["median"] for work in compared if work["rate_ratio"]]
    words = [goal["verdict"].split(",")[0] for goal in found["goals"]]
    return {
        "workloads": len(compared), "rate": count("rate_ratio"), "peak": count("peak_ratio"),
        "geometric_mean": stats.geometric_mean(medians) if medians else None,
        "goals": {word: words.count(word) for word in ("met", "missed", "not measured") if word in words},
    }  # fmt: skip


def _missing(figures: Figures, found: Mapping) -> list[str]:
    """What is not there, in sentences."""
    said = []
    unmeasured = [name for name in ROWS if name not in figures.outcomes]
    if unmeasured:
        said.append(f"Workloads: {', '.join(unmeasured)}.")
    present = {entry["name"] for work in found["workloads"] for entry in work["allocators"]}
    absent = [name for name in (SUBJECT, *PEERS) if name not in present]
    if absent:
        said.append(f"Allocators: {', '.join(absent)}.")
    unjudged = [goal["text"] for goal in found["goals"] if not goal["n"]]
    if unjudged:
        said.append(f"Goals: {'; '.join(unjudged)}.")
    others = [work["name"] for work in found["workloads"] if work["name"] in ROWS and not work["is_standard"]]
    if others:
        said.append(f"Ran with other arguments than this lab's table of workloads, so no goal is judged by them: "
                    f"{', '.join(others)}.")  # fmt: skip
    few = [work["name"] for work in found["workloads"] if work["runs"] < stats.runs_needed()]
    if few:
        said.append(f"Fewer than {stats.runs_needed()} runs, so no verdict: {', '.join(few)}.")
    uncounted = [work["name"] for work in found["workloads"]
                 if all(entry["system_calls"] is None for entry in work["allocators"])]  # fmt: skip
    if uncounted:
        said.append(f"System calls, which take root to count: {', '.join(uncounted)}.")
    for key, text in (("sizes", "The size table."), ("profiles", "Profiles beside each other."),
                      ("latency", "Tail latency."), ("soak", "Resident memory over time (hak soak).")):  # fmt: skip
        if not found[key]:
            said.append(text)
    kinds = sorted({row.kind for row in figures.others if row.kind != "soak"})
    if kinds:
        said.append(f"Rows of kind {' and '.join(kinds)} were given; the scorecard does not show them.")
    return said


def _order(found: Mapping) -> list[str]:
    """All allocators: the place in this list is their colour and their filter."""
    seen = dict.fromkeys(entry["name"] for work in found["workloads"] for entry in work["allocators"])
    seen |= dict.fromkeys(entry["allocator"] for part in ("latency", "soak") for entry in found[part])
    return [*FIRST, *(name for name in seen if name not in FIRST)]


def collect(rows: Iterable[Row], soaks: Sequence[Mapping] = ()) -> dict:
    """What the rows say, as plain data. soaks: of CSV files, as tail.soak_of_file gives them."""
    figures = Figures(rows)
    found = {
        "schema": SCHEMA, "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "subject": SUBJECT,
        "level": stats.LEVEL, "summary_level": stats.SUMMARY_LEVEL, "smallest": stats.SMALLEST,
        "sessions": _sessions(figures),
        "workloads": [entry for work in figures.works if (entry := _workload(figures, work))],
        "goals": _goals(figures), "sizes": _sizes(figures), "profiles": _profiles(figures),
        "latency": latencies(figures),
        "soak": [soak_of(row) for row in figures.others if row.kind == "soak"] + list(soaks),
    }  # fmt: skip
    found["summary"] = _summary(found)
    found["missing"] = _missing(figures, found)
    found["order"] = _order(found)
    return found


def render(found: Mapping) -> dict[str, str]:
    from lab.show import page

    return {
        "index.html": page.html(found),
        "scorecard.md": page.markdown(found),
        "scorecard.json": json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False) + "\n",
    }


def write(texts: Mapping[str, str], folder: pathlib.Path) -> list[pathlib.Path]:
    """Each file is complete before it takes its name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f".{name}.part").write_text(text, encoding="utf-8", errors="replace")
    for name in texts:
        os.replace(folder / f".{name}.part", folder / name)
    return [folder / name for name in texts]


__all__ = ["COMMAND", "collect", "goals", "render", "write"]
