"""hak replay: a recorded trace on several allocators in turns."""

import csv
import pathlib
import signal
import tempfile
from typing import Annotated

import typer

from lab.judge import allocations
from lab.run import allocators, machine, replay
from lab.show import replay as show
from lab.show import tables
from lab.store import trace
from lab.verbs import arguments

EPILOG = f"""Threads and hand-overs are as recorded: threads keep together within a window that is at most 1/32 of the
peak live bytes (1 MiB for small heaps, 16 MiB for huge ones). Each page of a block is written. A damaged trace is
replayed up to the damage. An allocator is one of {allocators.KNOWN}."""


def run(
    file: Annotated[pathlib.Path, typer.Argument(metavar="TRACE", help="what hak record wrote", show_default=False)],
    against: Annotated[str, typer.Option(metavar="LIST", help="what to compare hakmem with")] = ",".join(allocators.PEERS),
    lib: Annotated[list[str] | None, typer.Option(metavar="NAME=PATH", help="the library of an allocator")] = None,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="runs of each, after one that is dropped")] = 7,
    pin: Annotated[str | None, typer.Option(metavar="CPU",
        help="one CPU, or none (the last one, for a trace of one thread)")] = None,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="S", help="seconds a run may take")] = 600,
    json_file: Annotated[pathlib.Path | None, typer.Option("--json", metavar="FILE",
        help="append every run, one JSON object a line")] = None,
    csv_file: Annotated[pathlib.Path | None, typer.Option("--csv", metavar="FILE",
        help="live bytes and the heap's resident memory on the way, of every run")] = None,
    info: Annotated[bool, typer.Option("--info", help="say what is in the trace, and replay nothing")] = False,
    build_dir: Annotated[pathlib.Path | None, typer.Option(metavar="DIR",
        help="where bin/ and lib/ are (build/release)")] = None,
) -> None:  # fmt: skip
    build = arguments.build_dir(build_dir)
    out = tables.console()
    with arguments.refusals():
        found = allocators.find_all(f"{allocators.SUBJECT},{against}", build, arguments.pairs(lib, "--lib"))
        subject = "" if info else arguments.subject(found)
        if not info:
            arguments.check_programs(build, {"replay"})
        library = trace.library_in(build)
        if not library.is_file():
            raise ValueError(f"no {library}; run: hak build")
        events = trace.Trace(file, library)
    with events:
        if events.facts.problem:
            arguments.say(f"{file} {events.facts.problem}")
        sums = allocations.tally(events)
        if info:
            out.print(show.info(str(file), events.facts, sums, events.sites()))
            return
        with arguments.refusals():
            cpu = machine.cpu("none" if pin is None and sums.threads > 1 else pin)
            wanted, available = replay.memory_wanted(sums.events, sums.live_peak), replay.memory_available()
            if available and wanted > available:
                raise ValueError(
                    f"a replay of {file} needs {wanted >> 20:,} MiB, and {available >> 20:,} are available"
                )
            writer = arguments.writer(json_file, machine.context(build))
            samples = csv.writer(csv_file.open("w", encoding="utf-8", newline="")) if csv_file else None
        if samples:
            samples.writerow(["allocator", "run", "step", "live_kb", "rss_kb"])
        signal.signal(signal.SIGTERM, arguments.interrupted)
        out.print(machine.line(writer.context))
        out.print(show.line(file.name, events.facts, sums))
        with tempfile.TemporaryDirectory(prefix="hakmem-lab-") as folder:
            plan = pathlib.Path(folder, "plan")
            with arguments.refusals():
                events.write_plan(plan)
            outcome = replay.open_outcome(file.name, subject, found)
            replaying = replay.Replays(plan, str(build), found, runs, cpu, timeout, outcome)

            def keep(allocator, number, result, rows):
                writer.write(
                    kind="replay", work=file.name, command=["replay", file.name], allocator=allocator.name,
                    library=allocator.library, version=allocator.version, settings=dict(allocator.settings), run=number,
                    n=runs, cpu_pinned=cpu, load=machine.load(), result=result)  # fmt: skip
                if samples:
                    samples.writerows([allocator.name, number, *row] for row in rows)

            progress = tables.console(to_stderr=True)
            status = progress.status("") if progress.is_terminal else None
            if status:
                status.start()
                replaying.on_turn = lambda allocator, number: status.update(f"run {number}/{runs}, {allocator.name}")
            replaying.on_run = keep
            is_stopped = False
            try:
                replaying.run()
            except KeyboardInterrupt:
                is_stopped = True
            finally:
                if status:
                    status.stop()
    out.print("\n", show.outcome(outcome, "" if cpu is None else f", CPU {cpu}"))
    out.print(show.LEGEND)
    if is_stopped:
        arguments.say("stopped; what was measured until then is above")
        raise typer.Exit(130)
    if any(series.problem and not series.absent for series in outcome.series):
        raise typer.Exit(1)
