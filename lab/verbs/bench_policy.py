"""hak bench policy: what learning how long to keep freed memory is worth."""

import functools
import pathlib
from dataclasses import dataclass, field

from lab.judge import policy as judge
from lab.run import allocators, machine, policy, rounds
from lab.show import policy as show
from lab.show import tables
from lab.store.rows import Writer
from lab.verbs import arguments


@dataclass
class Found(judge.Found):
    """What is known so far."""

    problems: dict[str, str] = field(default_factory=dict)  # by workload: why nothing is known
    is_broken: bool = False  # one of these is more than something that is not installed

    @property
    def is_failed(self) -> bool:
        outcomes = (*self.measured, *self.overheads.values())
        return self.is_broken or any(series.problem for outcome in outcomes for series in outcome.series)


def run(
    words: list[str],
    refused: str,
    build: pathlib.Path,
    lib: list[str] | None,
    runs: int,
    seed: int,
    env: list[str] | None,
    timeout: float,
    json_file: pathlib.Path | None,
    is_tiny: bool,
) -> None:
    """refused: an option of `hak bench` that was given, and means nothing here; or ""."""
    with arguments.refusals():
        if refused:
            raise ValueError(f"policy compares hakmem with itself: {refused} means nothing to it")
        works = policy.chosen(words)
        library = allocators.find_all([allocators.SUBJECT], build, arguments.pairs(lib, "--lib"))
        arguments.subject(library)
        settings = arguments.pairs(env, "--env")
        arguments.check_programs(build, policy.PROGRAMS)
        arguments.check_options(settings, library, build)
        writer = arguments.writer(json_file, build, library)
    bench = policy.Bench(str(build), is_tiny, timeout, library[0].library)
    how, rest = (str(build), 1 if is_tiny else runs, is_tiny, seed), (timeout, False, settings)
    turns, others = policy.Turns(*how, None, *rest, bench=bench), rounds.Rounds(*how, machine.cpu(None), *rest)
    for measuring in (turns, others):
        measuring.on_run = functools.partial(_keep, writer, measuring)
    out = arguments.open_console(writer.context)
    found, is_stopped = Found(), False
    with arguments.ending():
        try:
            _model(bench, works, writer, found)
            out.print("\n", show.costs_table(found.costs, found.problems))
            to_measure = [work for work in works if work not in found.problems and work != policy.PURSUER]
            _measure(turns, others, to_measure, not words, found)
        except KeyboardInterrupt:
            is_stopped = True
    out.print("\n", show.measured_table(found.measured))
    goals = found.goals
    out.print(show.goal_table(goals, is_judged=not is_tiny))
    part = f"on {len(works)} of {len(policy.WORKS)} workloads, " if len(works) < len(policy.WORKS) else ""
    out.print("tiny: no goal is judged" if is_tiny else part + judge.verdict(goals))
    arguments.conclude([writer.problem], "stopped before the end" if is_stopped else "", found.is_failed)


def _model(bench: policy.Bench, works: list[str], writer: Writer, found: Found) -> None:
    for work in works:
        try:
            costs, short = bench.costs(work), bench.costs(work, policy.SHORT_TIMES)
            recovered = bench.recovered() if work == policy.TURNING else None
        except policy.Failed as error:
            found.problems[work] = str(error)
            found.is_broken |= not isinstance(error, policy.Absent)
            continue
        found.costs.append(costs)
        found.short.append(short)
        found.recovered = recovered or found.recovered
        result = costs.result | {judge.SHORT + key: value for key, value in short.result.items()}
        if recovered is not None:
            result["recovered"] = judge.stored(recovered)
        writer.keep(
            kind="policy", work=work, command=["policy_simulate", work], allocator=judge.MODELLED, library=None, run=1, n=1,
            is_tiny=bench.is_tiny, result=result)  # fmt: skip


def _measure(turns: policy.Turns, others: rounds.Rounds, works: list[str], is_overhead: bool, found: Found) -> None:
    rows = [policy.overhead_row(name) for name in policy.OVERHEADS] if is_overhead else []
    progress = tables.Progress(len(works) + len(rows), turns.runs)
    turns.on_turn = others.on_turn = progress.turn
    try:
        for work in works:
            row, outcome, entries = turns.open_work(work)
            found.measured.append(outcome)
            turns.run_row(row, entries)
        for row in rows:
            modes = policy.overhead_modes(turns.bench.library)
            found.overheads[row.name], entries = others.open_row(row, modes, judge.NOTHING)
            others.run_row(row, entries)
    finally:
        progress.close()


def _keep(writer: Writer, measuring: rounds.Rounds, row, entry, run: int, result: dict) -> None:
    writer.keep(**measuring.fields(row, entry, run, result) | {"kind": "policy", "cpu_pinned": None})
