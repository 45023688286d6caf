"""The table of `hak bench security`."""

from collections.abc import Mapping

from rich.table import Table

from lab.judge.outcome import RATE, Outcome
from lab.show import tables


def table(counts: Mapping[str, Mapping[str, int]], problems: Mapping[str, str], outcome: Outcome) -> Table:
    """Of each allocator what it did not notice, and its rate, of the subject's."""
    made = tables.table("allocator", "not caught", "of", "without effect", "rate", f"rate / {outcome.subject}", "")
    for series in outcome.series:
        found, name = counts.get(series.name, {}), series.name
        values = series.values(RATE).values()
        made.add_row(
            name,
            *(str(found.get(key, "")) for key in ("not_caught", "programs", "without_effect")),
            tables.rate(tables.median(values)) if values else "",
            tables.ratio(outcome.ratio(name, outcome.subject)) if name != outcome.subject else "",
            problems.get(name) or series.problem,
        )
    return made
