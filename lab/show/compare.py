"""The tables of `hak compare`."""

import shlex
from collections.abc import Callable
from dataclasses import replace

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lab.judge import recommend, stats
from lab.judge.recommend import CPU, MEMORY, TIME, Figure
from lab.run.allocators import Allocator
from lab.run.compare import Candidate, Comparison, Plan
from lab.show import tables

AT_END = Figure("rss_end_kb", "RSS at the end of the load", stats.SIZE)
FAULTS = Figure("faults", "page faults", stats.COUNT)
NAMED = {figure.key for figure in recommend.JUDGED}  # the level of the intervals is that of their verdicts
STYLES = {-1: "green", 1: "red"}


def _seconds(value: float) -> str:
    return f"{tables.number(value)} s" if value >= 1 else f"{tables.number(1000 * value)} ms"


def _mib(value: float) -> str:
    return f"{tables.number(value / 1024)} MiB"


def _interval(ratio: stats.Ratio) -> str:
    return "?" if stats.verdict(ratio) == stats.TOO_FEW else f"{ratio.low:.3f} - {ratio.high:.3f}"


# By the key of the figure.
FORMS: dict[str, Callable[[float], str]] = {
    TIME.key: _seconds, CPU.key: _seconds, MEMORY.key: _mib, AT_END.key: _mib, FAULTS.key: lambda value: f"{value:.0f}"
}  # fmt: skip


def _table(comparison: Comparison, measured: list[Candidate], figure: Figure, level: float) -> Table:
    reference = comparison.reference
    made = tables.table(figure.title, "median", f"{stats.SUMMARY_LEVEL:.0%} interval", f"of {reference.name}'s",
                        f"{level:.1%} interval", "")  # fmt: skip
    for candidate in measured:
        values, form = candidate.values(figure.key), FORMS[figure.key]
        if not values:
            continue
        summary = stats.summarize(values.values())
        cells = [candidate.name, form(summary.median), f"{form(summary.low)} - {form(summary.high)}"]
        if candidate is not reference:
            found = recommend.compare({figure.key: values}, {figure.key: reference.values(figure.key)}, figure, level)
            cells += [f"{found.ratio.median:.3f}", _interval(found.ratio)] if found.ratio else []
            if found.ratio and figure.key in NAMED:
                cells.append(Text(found.verdict, style=STYLES.get(found.counts, "")))
        made.add_row(*cells)
    return made


def _calls_table(comparison: Comparison, measured: list[Candidate]) -> Table | None:
    base = comparison.reference.system_calls
    if base is None:
        return None
    made = tables.table("system calls, one run", "count", f"of {comparison.reference.name}'s")
    for candidate in measured:
        if candidate.system_calls is not None:
            share = f"{candidate.system_calls / base:.3f}" if base and candidate is not comparison.reference else ""
            made.add_row(candidate.name, str(candidate.system_calls), share)
    return made


def comparison_tables(comparison: Comparison) -> Group:
    plan = comparison.plan
    measured = [candidate for candidate in comparison.candidates if candidate.results]
    level = recommend.level(comparison.compared)
    runs = max((len(candidate.results) for candidate in measured), default=0)
    time = replace(TIME, title="time of the load") if plan.until else TIME
    figures = [time, CPU, MEMORY, *([AT_END] if plan.until else []), FAULTS]
    parts: list = [Text(f"{plan.command}  [{runs} run{'' if runs == 1 else 's'} each, in turns"
                        f"{f', CPU {plan.cpu}' if plan.cpu is not None else ''}]", style="bold")]  # fmt: skip
    if measured:
        parts += [_table(comparison, measured, figure, level) for figure in figures]
        parts += [calls] if (calls := _calls_table(comparison, measured)) else []
    parts += [
        Text(f"  {candidate.name}: {candidate.problem}") for candidate in comparison.candidates if candidate.problem
    ]
    parts += [Text(f"  note: {note}") for note in comparison.notes]
    if measured:
        parts.append(Text(legend(bool(plan.until))))
    return Group(*parts)


def legend(is_server: bool) -> str:
    of = "the server's, during the load" if is_server else "those of all its processes"
    return (
        f"CPU time and page faults are {of}; sizes are of its largest process. A difference is named when the interval of "
        f"the median ratio lies beyond {stats.SMALLEST:.0%}; all these words together, and the sentence made of them, hold "
        f"at {1 - recommend.FAMILY_ERROR:.0%}. The rest is shown and not judged."
    )


def how_to_use(plan: Plan, chosen: Allocator) -> str:
    settings = [f"{name}={shlex.quote(value)}" for name, value in chosen.settings.items()]
    return " ".join(["env", *settings, f"LD_PRELOAD={shlex.quote(chosen.library)}", plan.command])


class Progress(tables.Line):
    """What runs at the moment: one line that overwrites itself on a terminal, one line a round elsewhere."""

    def __init__(self, comparison: Comparison):
        super().__init__()
        self.comparison = comparison

    def turn(self, candidate: Candidate, run: int) -> None:
        runs = self.comparison.plan.runs
        text = "warm-up" if run == 0 else f"round {run} of {runs}" if run <= runs else "system calls"
        self.show(f"{text}, {candidate.name}", text)
