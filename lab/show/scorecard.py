"""The scorecard: stored rows as one page for the browser, as Markdown, and as JSON.

    found = collect(rows, soaks)    what is said, as plain data: the JSON file
    render(found)                   {file name: text} of the three files
    write(texts, folder)            each beside its name first, then all take their names

Verdicts are those of lab/judge/stats.py and drift.py; the templates only place them.
"""

import datetime
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from lab.judge import drift, latency, stats
from lab.run.allocators import PEERS, SUBJECT
from lab.run.workloads import ROWS
from lab.show import files, parts
from lab.show.figures import Figures
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


def _summary(found: Mapping) -> dict:
    """How often which verdict stands, against the best peer of each workload."""

    def count(key, is_compared):
        words = [work[key]["verdict"] for work in found["workloads"] if work[key] and work[is_compared]]
        return {word: words.count(word) for word in WORDS if word in words}

    compared = [work for work in found["workloads"] if work["is_rate_compared"]]
    medians = [work["rate_ratio"]["median"] for work in compared if work["rate_ratio"]]
    words = [goal["verdict"].split(",")[0] for goal in found["goals"]]
    return {
        "workloads": len(compared), "rate": count("rate_ratio", "is_rate_compared"),
        "peak": count("peak_ratio", "is_size_compared"),
        "geometric_mean": stats.geometric_mean(medians) if medians else None,
        "goals": {word: words.count(word) for word in ("met", "missed", "not measured") if word in words},
    }  # fmt: skip


def _missing(figures: Figures, found: Mapping) -> list[str]:
    """What is not there, in sentences."""
    works = found["workloads"]
    present = {entry["name"] for work in works for entry in work["allocators"]}
    lists = {
        "Workloads: ": [name for name in ROWS if name not in figures.outcomes],
        "Allocators: ": [name for name in (SUBJECT, *PEERS) if name not in present],
        "Goals: ": ["; ".join(goal["text"] for goal in found["goals"] if not goal["n"])],
        "Ran with other arguments than this lab's table of workloads, so no goal is judged by them: ":
            [work["name"] for work in works if work["name"] in ROWS and not work["is_standard"]],
        f"Fewer than {stats.runs_needed()} runs, so no verdict: ":
            [work["name"] for work in works if work["runs"] < stats.runs_needed()],
    }  # fmt: skip
    for work in works:
        if work["peers_missing"] and (work["is_rate_compared"] or work["is_size_compared"]):
            names = ", ".join(work["peers_missing"])
            text = f"Without {names}, so that the fastest and the leanest peer are those of the others: "
            lists.setdefault(text, []).append(work["name"])
    lists["System calls, which take root to count: "] = [
        work["name"] for work in works if all(entry["system_calls"] is None for entry in work["allocators"])]  # fmt: skip
    said = [f"{text}{', '.join(names)}." for text, names in lists.items() if any(names)]
    for key, text in (("sizes", "The size table."), ("profiles", "Presets beside each other."),
                      ("profile_tails", "Tail latency of the presets."),
                      ("profile_drifts", "The presets over time (hak soak)."),
                      ("latency", "Tail latency."), ("soak", "Resident memory over time (hak soak)."),
                      ("traces", "Fragmentation over time (hak replay --json).")):  # fmt: skip
        if not found[key]:
            said.append(text)
    if any(row.kind == "compare" for row in figures.others):
        said.append("Rows of hak compare were given; it prints them itself, the scorecard does not show them.")
    return said


def _order(found: Mapping) -> list[str]:
    """All allocators: the place in this list is their colour and their filter."""
    seen = dict.fromkeys(entry["name"] for work in found["workloads"] for entry in work["allocators"])
    seen |= dict.fromkeys(entry["allocator"] for part in ("latency", "soak", "traces") for entry in found[part])
    return [*FIRST, *(name for name in seen if name not in FIRST)]


def collect(rows: Iterable[Row], soaks: Sequence[Mapping] = ()) -> dict:
    """What the rows say, as plain data. soaks: of CSV files, as tail.soak_of_file gives them."""
    figures = Figures(rows)
    soaked = [soak_of(row) for row in figures.others if row.kind == "soak"] + list(soaks)
    found = {
        "schema": SCHEMA, "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "subject": SUBJECT,
        "level": stats.LEVEL, "summary_level": stats.SUMMARY_LEVEL, "smallest": stats.SMALLEST,
        "drift_level": drift.LEVEL, "samples_beyond": latency.BEYOND_MIN,
        "sessions": parts.sessions(figures),
        "workloads": [entry for work in figures.works if (entry := parts.workload(figures, work))],
        "disagreements": parts.disagreements(figures), "goals": parts.goals(figures), "sizes": parts.sizes(figures),
        "profiles": parts.profiles(figures), "profile_tails": parts.profile_tails(figures),
        "profile_drifts": parts.profile_drifts(soaked), "latency": latencies(figures.outcomes), "soak": soaked,
        "traces": parts.traces(figures.others),
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
    folder.mkdir(parents=True, exist_ok=True)
    return files.write({folder / name: text for name, text in texts.items()})
