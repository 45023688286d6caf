"""The tables of `hak bench scaling`."""

from collections.abc import Sequence

from rich.table import Table

from lab.judge.scaling import SHARED, Scaled, Work
from lab.show import tables


def shared(work: Work) -> Table:
    made = tables.table(f"{work.name}: what threads share", "of", "operations for one use")
    for each in SHARED:
        if uses := work.uses(each):
            made.add_row(each.name, each.scope, f"{1 / uses:,.0f}")
    return made


def table(work: Work, found: Sequence[Scaled]) -> Table:
    made = tables.table(f"{work.name}: cores", "of their rate", "busiest", "of the time")
    for each in found:
        made.add_row(str(each.cores), f"{each.efficiency:.2f}", each.busiest, f"{each.busy:.0%}")
    return made
