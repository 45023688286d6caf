"""The table of latencies: what bench/latency measured, of several allocators."""

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.text import Text

from lab.judge import latency
from lab.show import tables

TOO_FEW = "too few"


def cell(value: float | None) -> str:
    return TOO_FEW if value is None else tables.number(value, 3)


def table(results: Mapping[str, Sequence[dict]]) -> Group:
    """allocator -> the results of its runs, as printed or as stored; they are merged."""
    made = tables.table("ns", "", *(latency.name(percent) for percent in latency.PERCENTILES), "max", "samples")
    steps = []
    for name, runs in results.items():
        if not runs:
            continue
        merged = latency.merge([latency.load(run) for run in runs])
        steps.append(merged.step_ns)
        for part in latency.PARTS:
            values = merged.percentiles_ns(part)
            made.add_row(name if part == latency.PARTS[0] else "", part, *(cell(value) for value in values.values()),
                         tables.number(merged.max_ns(part), 4), str(merged.n(part)))  # fmt: skip
    step = f"{max(steps):.1f} ns" if steps else "unknown"
    return Group(
        made,
        Text(
            f"  timer: an empty timed pair in the same loop; its cost is part of the values above it and not taken off. The "
            f"clock moves in steps of {step}.\n  {TOO_FEW}: fewer than {latency.BEYOND_MIN} samples lie beyond that "
            "percentile. max: the largest of so many samples, interrupts and the host's pauses included."
        ),
    )
