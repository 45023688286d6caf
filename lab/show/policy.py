"""Tables of `hak bench policy`."""

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lab.judge.outcome import Outcome
from lab.judge.policy import AREA, FILE, NOTHING, OFF, WALL, Costs, Goal, means
from lab.show import tables

STYLES = {"met": "green", "missed": "red"}
MEASURES = ((WALL, "wall"), ("cpu_seconds", "CPU"), (AREA, "RSS x time"))


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 1000 else f"{value:.0f}"


def costs_table(costs: Sequence[Costs], problems: Mapping[str, str]) -> Group:
    """Every strategy's modelled cost, relative to the best fixed one of the workload."""
    parts = [Text("modelled cost, of the best fixed strategy's of each workload:", style="bold")]
    names = list(dict.fromkeys(name for each in costs for name in each.fixed))
    made = tables.table("work", "best, ms", *names, "evolving", "from file", "best of arm", "events", "arms", "matches",
                        "switches")  # fmt: skip
    for each in costs:
        made.add_row(
            each.work,
            tables.number(each.fixed[each.best] / 1e6),
            *(Text(_times(each.relative(each.fixed.get(name))), style="bold" if name == each.best else "")
              for name in names),
            _times(each.relative(each.nothing)),
            _times(each.relative(each.file)),
            _times(each.relative(each.best_of_arm)),
            *(str(count) for count in (each.events, each.arms, each.matches, each.switches)),
        )  # fmt: skip
    mean = means(costs)
    if mean:
        made.add_section()
        made.add_row("geometric mean", "", *(_times(mean.fixed.get(name)) for name in names), _times(mean.nothing),
                     _times(mean.file))  # fmt: skip
    parts += [made] if costs else []
    if mean:
        against = "" if mean.file is None else f", from a file {mean.file_against_one:.3f}"
        parts.append(Text(f"  the best single fixed strategy for all {mean.works}: {mean.one}; evolving costs "
                          f"{mean.nothing_against_one:.3f} of it{against}"))  # fmt: skip
    left_out = [each.work for each in costs if not each.is_compared]
    if left_out:
        parts.append(Text(f"  in no mean, as a strategy costs nothing there: {', '.join(left_out)}"))
    beyond = [each.work for each in costs if not each.is_counted]
    if beyond:
        parts.append(Text(f"  in no mean, as it is about the worst case: {', '.join(beyond)}"))
    parts += [Text(f"  {work}: {problem}") for work, problem in problems.items()]
    return Group(*parts)


def measured_table(outcomes: Sequence[Outcome]) -> Group:
    made = tables.table("work", "runs", "wall s", "MiB on average", "faults",
                        *(f"{mode}: {name}" for mode in (NOTHING, FILE) for _, name in MEASURES))  # fmt: skip
    for outcome in outcomes:
        off = outcome.of(OFF)
        wall, area, faults = (tables.middle(off, key) for key in (WALL, AREA, "faults"))
        made.add_row(
            outcome.work,
            str(len(off.results)),
            "" if wall is None else f"{wall:.2f}",
            "" if not wall or area is None else f"{area / 1024 / (wall * 1000):.1f}",
            "" if faults is None else f"{faults:.0f}",
            *(tables.ratio(outcome.ratio(mode, OFF, key)) for mode in (NOTHING, FILE) for key, _ in MEASURES),
        )
    problems = [Text(f"  {outcome.work}, {series.name}: {series.problem}")
                for outcome in outcomes for series in outcome.series if series.problem]  # fmt: skip
    return Group(
        Text("measured with the engine off, and evolving / off, medians of paired ratios:", style="bold"),
        made,
        *problems,
    )


def goal_table(found: Sequence[Goal], is_judged: bool) -> Table:
    made = Table(box=tables.box.SIMPLE_HEAD, pad_edge=False)
    for column in ("goal", "reached", "wanted", ""):
        made.add_column(column, no_wrap=True)
    for goal in found:
        word = goal.word if is_judged or not (goal.is_met or goal.is_missed) else "not judged"
        made.add_row(goal.text, goal.reached, goal.wanted, Text(word, style=STYLES.get(word.split(",")[0], "")))
    return made
