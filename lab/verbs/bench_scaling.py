"""hak bench scaling: what a workload would get of many cores, by a model."""

import dataclasses

import typer

from lab.judge import scaling as judge
from lab.run import allocators, rounds, scaling
from lab.show import scaling as show
from lab.verbs import arguments


def run(rows: list, found: list[allocators.Allocator], subject: str, measuring: rounds.Rounds, writer) -> None:
    out = arguments.open_console(writer.context)
    problems: dict[str, str] = {}
    with arguments.ending():
        for row in rows:
            _, (entry, *_) = measuring.open_row(dataclasses.replace(row, variants=()), found[:1], subject)
            work, problem = scaling.work(measuring, row, entry)
            if work is None:
                problems[row.name] = problem
                continue
            uses = judge.USES // 100 if measuring.is_tiny else judge.USES
            out.print("\n", show.shared(work), "\n", show.table(work, judge.scaled(work, uses=uses)))
    for name, problem in problems.items():
        arguments.say(f"{name}: {problem}")
    if problems:
        raise typer.Exit(1)
