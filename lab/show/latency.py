"""The table of latencies: what bench/latency measured, of several allocators, and what can be said of their tails."""

from rich.console import Group
from rich.text import Text

from lab.judge import latency, stats
from lab.judge.outcome import Outcome
from lab.show import tables

TOO_FEW = "too few"
COMPARED = (99, 99.9)  # these percentiles of a call
CALLS = ("malloc", "free")


def cell(value: float | None) -> str:
    return TOO_FEW if value is None else tables.number(value, 3)


def _verdicts(outcome: Outcome, name: str, part: str) -> list[Text | str]:
    """The subject's percentiles over those of `name`, by pairs of runs; nothing for the subject and for the timer."""
    if name == outcome.subject or part not in CALLS:
        return ["", ""] * len(COMPARED)
    found = [outcome.ratio(outcome.subject, name, latency.key(part, percent)) for percent in COMPARED]
    return [made for one in found for made in (tables.ratio(one), tables.verdict(one, stats.TIME))]


def table(outcome: Outcome) -> Group:
    """Of a workload whose results hold histograms as they are stored."""
    heads = [head for percent in COMPARED
             for head in (f"{outcome.subject} / it, {latency.name(percent)}", f"{outcome.subject} is")]  # fmt: skip
    made = tables.table("ns", "", *(latency.name(percent) for percent in latency.PERCENTILES), "max", "samples", *heads)
    steps = []
    for series in outcome.series:
        runs = [latency.load(result) for result in series.results.values() if result.get("latency_source")]
        if not runs:
            continue
        merged = latency.merge(runs)
        steps.append(merged.step_ns)
        for part in latency.PARTS:
            values = merged.percentiles_ns(part)
            made.add_row(series.name if part == latency.PARTS[0] else "", part,
                         *(cell(value) for value in values.values()), tables.number(merged.max_ns(part), 4),
                         str(merged.n(part)), *_verdicts(outcome, series.name, part))  # fmt: skip
    step = f"{max(steps):.1f} ns" if steps else "unknown"
    return Group(
        made,
        Text(
            "  percentiles: of all runs together; ratios: medians of those of the runs' pairs.\n  timer: an empty timed "
            "pair in the same loop; its cost is part of the values above it, and of the ratios, and not taken off. The "
            f"clock moves in steps of {step}.\n  {TOO_FEW}: fewer than {latency.BEYOND_MIN} samples lie beyond that "
            "percentile. max: the largest of so many samples, interrupts and the host's pauses included."
        ),
    )
