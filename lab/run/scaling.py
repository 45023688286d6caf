"""What the model of many cores needs to know of a workload: its time an operation, and what the library counts."""

from lab.judge.scaling import Work
from lab.run.rounds import Entry, Rounds
from lab.run.workloads import ROWS, Row

GROUP = "scaling"
WORKS = ("mixed", "larson-8-1024", "handoff-1-1", "handoff-4-4", "large_mix")


def chosen(words: list[str]) -> list[Row]:
    """ValueError on a word that is none of WORKS."""
    for word in words:
        if word not in WORKS:
            raise ValueError(f"scaling knows {', '.join(WORKS)}, not '{word}'")
    return [ROWS[name] for name in words or WORKS]


def work(measuring: Rounds, row: Row, entry: Entry) -> tuple[Work | None, str]:
    """One run, and ""; or None and a sentence why not."""
    reporting = Entry(entry.series, entry.allocator, entry.settings | {"HAKMEM_STATS": "json"})
    result, problem = measuring.run(row, reporting)
    if result is None:
        return None, problem
    operations = result["operations"]
    counters = {name: count / operations for name, count in measuring.reported.items()}
    return Work(row.name, result["cpu_seconds"] * 1e9 / operations, counters), ""
