"""hak bench: measures hakmem and its peers with the benchmark programs, in turns."""

import os
import pathlib
import signal
from typing import Annotated

import typer

from lab.run import allocators, goals, machine, rounds, workloads
from lab.show import latency, tables
from lab.verbs import arguments

EPILOG = f"""NAME is a group ({", ".join(workloads.GROUPS)}), a set ({", ".join(workloads.SETS)}, or goals: the rows that
have a goal), a row (fixed-64, larson-8-1024, ...), or a program with its arguments as one word
("random_mixed 5000000 4000 1"). Without NAME: the first row of each group that is quick. At the end stands how far
the goals of the measured rows are. An allocator is one of {allocators.KNOWN}."""


def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="what to run")] = None,
    against: Annotated[str | None, typer.Option(metavar="LIST", help="what to compare hakmem with")] = None,
    allocator_words: Annotated[str | None, typer.Option("--allocators", metavar="LIST",
        help="all of them; hakmem, or else the first, is compared with the rest")] = None,
    lib: Annotated[list[str] | None, typer.Option(metavar="NAME=PATH", help="the library of an allocator")] = None,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="runs of each, after one that is dropped")] = 11,
    pin: Annotated[str | None, typer.Option(metavar="CPU",
        help="for rows with one thread; the last CPU, or none")] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="of the random numbers")] = 1,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="set for every program")] = None,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="S", help="seconds a run may take")] = 120,
    cpu_time: Annotated[bool, typer.Option("--cpu-time",
        help="rates of rows with one thread from CPU time: for a machine that does other work too")] = False,
    json_file: Annotated[pathlib.Path | None, typer.Option("--json", metavar="FILE",
        help="append every run, one JSON object a line")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="one run of almost nothing: does it work?")] = False,
    build_dir: Annotated[pathlib.Path | None, typer.Option(metavar="DIR",
        help="where bin/ and lib/ are (build/release)")] = None,
) -> None:  # fmt: skip
    build = arguments.build_dir(build_dir)
    with arguments.refusals():
        if against and allocator_words:
            raise ValueError("--allocators and --against exclude each other")
        chosen = workloads.chosen(names or [], goals.ROW_NAMES)
        words = allocator_words or f"{allocators.SUBJECT},{against or ','.join(allocators.PEERS)}"
        found = allocators.find_all(words, build, arguments.pairs(lib, "--lib"))
        subject = arguments.subject(found)
        settings = arguments.pairs(env, "--env")
        cpu = machine.cpu(pin)
        arguments.check_programs(build, {row.command.split()[0] for row in chosen})
        writer = arguments.writer(json_file, machine.context(build))

    out = tables.console()
    progress = tables.Progress(len(chosen), 1 if tiny else runs)
    measuring = rounds.Rounds(str(build), 1 if tiny else runs, tiny, seed, cpu, timeout, cpu_time, settings)

    def keep(row, entry, run, result):
        writer.write(
            kind="bench", work=row.name, command=measuring.words(entry.series.command), seed=seed,
            allocator=entry.series.name, library=entry.allocator.library, version=entry.allocator.version,
            settings=settings | dict(entry.allocator.settings) | entry.settings, run=run, n=measuring.runs,
            cpu_pinned=measuring.pinned(row), clock=measuring.clock(row), load=machine.load(),
            result=result)  # fmt: skip

    measuring.on_run, measuring.on_turn = keep, progress.turn
    signal.signal(signal.SIGTERM, arguments.interrupted)
    out.print(machine.line(writer.context))
    if machine.load() > os.cpu_count() / 2:
        out.print(f"load average {machine.load():.1f} on {os.cpu_count()} CPUs: others run here, expect noise")
    outcomes, has_failed, is_stopped = [], False, False
    for row in chosen:
        outcome, entries = measuring.open_row(row, found, subject)
        try:
            measuring.run_row(row, entries)
        except KeyboardInterrupt:
            is_stopped = True
        if not is_stopped or any(series.results for series in outcome.series):
            outcomes.append(outcome)
            has_failed |= any(series.problem and not series.absent for series in outcome.series)
            note = "" if measuring.pinned(row) is None else f", CPU {cpu}"
            note += ", CPU time" if measuring.clock(row) == "cpu" else ""
            note += ", tiny: rates mean nothing" if tiny else ""
            out.print("\n", tables.outcome_tables(outcome, row.shows, note))
            if row.group == "latency":
                out.print(latency.table(outcome))
        if is_stopped:
            break
    progress.close()
    if len(outcomes) > 1:
        out.print(tables.summary(outcomes))
    measured = {outcome.work for outcome in outcomes}
    want_goals = "goals" in (names or [])
    to_judge = [goal for goal in goals.GOALS if want_goals or measured.issuperset(goal.rows) and not tiny]
    if to_judge and outcomes:
        out.print(tables.goal_table(outcomes, to_judge, is_judged=not tiny))
    if outcomes:
        out.print(tables.LEGEND)
    if is_stopped:
        arguments.say(f"stopped after {len(outcomes)} of {len(chosen)} rows")
        raise typer.Exit(130)
    if has_failed:
        raise typer.Exit(1)
