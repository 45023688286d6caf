"""hak bench: measures hakmem and its peers with the benchmark programs, in turns."""

import functools
from typing import Annotated

import typer

from lab.judge.outcome import Outcome
from lab.run import allocators, goals, machine, policy, rounds, scaling, security, workloads
from lab.show import latency, tables
from lab.store.rows import Writer
from lab.verbs import arguments, bench_policy, bench_scaling, bench_security

RUNS = 11
EPILOG = f"""NAME is a group ({", ".join(workloads.GROUPS)}), a set ({", ".join(workloads.SETS)}, or goals: the rows that
have a goal), a row (fixed-64, larson-8-1024, ...), or a program with its arguments as one word
("random_mixed 5000000 4000 1"). Without NAME: the first row of each group that is quick. At the end stands how far
the goals of the measured rows are. An allocator is one of {allocators.KNOWN}.

thp: four works under each of the system's settings of transparent huge pages. It is switched, which needs root, and put
back at the end of each row, also when interrupted or killed.

policy [WORK...]: the policy engine against every fixed strategy, by modelled cost, and evolving against off, measured
({policy.RUNS} runs). WORK is one of {", ".join(policy.WORKS)}.

security: of the small programs of tests/misuse, each with one misuse of the heap, how many end unnoticed on each
allocator ({", ".join(security.ALLOCATORS)}, or those of --allocators), and the rates of `mixed` ({security.RUNS} runs).

scaling [WORK...]: what works would get of 2 to 256 cores, by a model that is fed with one run's counters and time of an
operation. WORK is one of {", ".join(scaling.WORKS)}."""


def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="what to run")] = None,
    against: Annotated[str | None, typer.Option(metavar="LIST", help="what to compare hakmem with")] = None,
    allocator_words: Annotated[str | None, typer.Option("--allocators", metavar="LIST",
        help="all of them; hakmem, or else the first, is compared with the rest")] = None,
    lib: arguments.Libraries = None,
    runs: Annotated[int | None, typer.Option(min=1, metavar="N",
        help=f"runs of each, after one that is dropped ({RUNS}; policy: {policy.RUNS}; security: {security.RUNS})")] = None,
    pin: Annotated[str | None, typer.Option(metavar="CPU",
        help="for rows with one thread; the last CPU, or none")] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="of the random numbers")] = 1,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="set for every program")] = None,
    timeout: arguments.Timeout = 120,
    cpu_time: Annotated[bool, typer.Option("--cpu-time",
        help="rates of rows with one thread from CPU time: for a machine that does other work too")] = False,
    json_file: arguments.Rows = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="one run of almost nothing: does it work?")] = False,
    build_dir: arguments.BuildDir = None,
) -> None:  # fmt: skip
    build = arguments.build_dir(build_dir)
    if names and names[0] == policy.GROUP:
        given = {"--against": against, "--allocators": allocator_words, "--pin": pin, "--cpu-time": cpu_time or None}
        bench_policy.run(
            names[1:], next((option for option, value in given.items() if value is not None), ""), build, lib,
            runs or policy.RUNS, seed, env, timeout, json_file, tiny)  # fmt: skip
        return
    with arguments.refusals():
        if against is not None and allocator_words is not None:
            raise ValueError("--allocators and --against exclude each other")
        is_security = names is not None and names[:1] == [security.GROUP]
        is_scaling = names is not None and names[:1] == [scaling.GROUP]
        if is_security:
            bench_security.check(build, names[1:])
            allocator_words = allocator_words or (against is None and ",".join(security.ALLOCATORS)) or None
        if is_scaling:
            if json_file or against is not None or runs is not None:
                raise ValueError(
                    "scaling models hakmem alone, from one run, and stores nothing: --against, --runs and --json mean "
                    "nothing to it"
                )
            allocator_words = allocator_words or allocators.SUBJECT
            chosen = scaling.chosen((names or [])[1:])
        else:
            chosen = workloads.chosen([] if is_security else names or [], goals.ROW_NAMES)
        others = ",".join(allocators.PEERS) if against is None else against
        words = f"{allocators.SUBJECT},{others}" if allocator_words is None else allocator_words
        found = allocators.find_all(words, build, arguments.pairs(lib, "--lib"))
        subject = arguments.subject(found)
        settings = arguments.pairs(env, "--env")
        cpu = machine.cpu(pin)
        arguments.check_programs(build, {row.command.split()[0] for row in chosen})
        arguments.check_options(settings, found, build)
        writer = arguments.writer(json_file, build, found)
    runs = runs or (security.RUNS if is_security else RUNS)
    measuring = rounds.Rounds(str(build), 1 if tiny else runs, tiny, seed, cpu, timeout, cpu_time, settings)
    if is_security:
        bench_security.run(found, subject, measuring, writer)
        return
    if is_scaling:
        bench_scaling.run(chosen, found, subject, measuring, writer)
        return
    measuring.on_run = functools.partial(_keep, writer, measuring)
    out = arguments.open_console(writer.context)
    with arguments.ending():
        outcomes, is_stopped = _measure(measuring, chosen, found, subject, out)
    want_goals = "goals" in (names or [])
    _conclude(outcomes, out, want_goals, tiny)
    failed = any(series.problem and not series.absent for outcome in outcomes for series in outcome.series)
    stopped = f"stopped after {len(outcomes)} of {len(chosen)} rows" if is_stopped else ""
    arguments.conclude([writer.problem], stopped, failed)


def _keep(writer: Writer, measuring: rounds.Rounds, row, entry, run: int, result: dict) -> None:
    where = writer.context.machine
    if row.huge_pages and not measuring.is_tiny:
        where = where.model_copy(update={"thp": row.huge_pages})
    writer.keep(kind="bench", machine=where, **measuring.fields(row, entry, run, result))


def _measure(measuring: rounds.Rounds, chosen, found, subject: str, out) -> tuple[list[Outcome], bool]:
    """The rows one after another, each shown when it is done. True: it was stopped."""
    progress = tables.Progress(len(chosen), measuring.runs)
    measuring.on_turn = progress.turn
    outcomes = []
    try:
        for row in chosen:
            outcome, entries = measuring.open_row(row, found, subject)
            try:
                measuring.run_row(row, entries)
            finally:
                if any(series.results or series.problem for series in outcome.series):
                    outcomes.append(outcome)
                    _show(measuring, row, outcome, out)
    except KeyboardInterrupt:
        return outcomes, True
    finally:
        progress.close()
    return outcomes, False


def _show(measuring: rounds.Rounds, row, outcome: Outcome, out) -> None:
    note = "" if measuring.pinned(row) is None else f", CPU {measuring.pinned(row)}"
    note += ", CPU time" if measuring.clock(row) == "cpu" else ""
    note += f", transparent huge pages: {row.huge_pages}" if row.huge_pages and not measuring.is_tiny else ""
    note += ", tiny: rates mean nothing" if measuring.is_tiny else ""
    out.print("\n", tables.outcome_tables(outcome, row.shows, note))
    if any("latency_source" in result for series in outcome.series for result in series.results.values()):
        out.print(latency.table(outcome))


def _conclude(outcomes: list[Outcome], out, want_goals: bool, is_tiny: bool) -> None:
    if len(outcomes) > 1:
        out.print(tables.summary(outcomes))
    measured = {outcome.work for outcome in outcomes}
    to_judge = [goal for goal in goals.GOALS if want_goals or measured.issuperset(goal.rows) and not is_tiny]
    if to_judge and outcomes:
        out.print(tables.goal_table(outcomes, to_judge, is_judged=not is_tiny))
    if outcomes:
        out.print(tables.LEGEND)
