"""hak replay: a recorded trace on several allocators in turns."""

import contextlib
import csv
import functools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from lab.judge import allocations
from lab.run import allocators, machine, replay
from lab.run.folder import Folder
from lab.show import replay as show
from lab.show import tables
from lab.store import trace
from lab.store.rows import Writer
from lab.verbs import arguments

EPILOG = f"""Threads and hand-overs are as recorded: threads keep together within a window that is at most 1/32 of the
peak live bytes (1 MiB for small heaps, 16 MiB for huge ones). Each page of a block is written. A damaged trace is
replayed up to the damage. An allocator is one of {allocators.KNOWN}."""


def run(
    line: typer.Context,
    file: Annotated[pathlib.Path, typer.Argument(metavar="TRACE", help="what hak record wrote", show_default=False)],
    against: Annotated[str, typer.Option(metavar="LIST", help="what to compare hakmem with")] = ",".join(allocators.PEERS),
    lib: arguments.Libraries = None,
    runs: arguments.Rounds = 7,
    pin: Annotated[str | None, typer.Option(metavar="CPU",
        help="one CPU, or none (the last one, for a trace of one thread)")] = None,
    timeout: arguments.Timeout = 600,
    json_file: arguments.Rows = None,
    csv_file: Annotated[pathlib.Path | None, typer.Option("--csv", metavar="FILE",
        help="live bytes and the heap's resident memory on the way, of every run; not overwritten")] = None,
    info: Annotated[bool, typer.Option("--info", help="say what is in the trace, and replay nothing")] = False,
    build_dir: arguments.BuildDir = None,
) -> None:  # fmt: skip
    build = arguments.build_dir(build_dir)
    found, subject = [], ""
    with arguments.refusals():
        if info:
            arguments.check_meaning(line, ("file", "info", "build_dir"), "--info")
        library = trace.library_in(build)
        if not library.is_file():
            raise ValueError(f"no {library}; run: hak build")
        if not info:
            words = f"{allocators.SUBJECT},{against}"
            found = allocators.find_all(words, build, arguments.pairs(lib, "--lib"))
            subject = arguments.subject(found)
            arguments.check_programs(build, {"replay"})
            if csv_file and csv_file.is_file():
                raise ValueError(f"--csv: {csv_file} is there; it is not overwritten")
        events = trace.Trace(file, library)
    out = tables.console()
    with arguments.ending(), events, _memory_for(file):
        if events.facts.problem:
            arguments.say(f"{file} {events.facts.problem}")
        sums = allocations.tally(events)
        if info:
            out.print(show.info(str(file), events.facts, sums, events.sites()))
            return
        with Folder() as folder:
            plan = pathlib.Path(folder, "plan")
            with arguments.refusals():
                cpu = machine.cpu("none" if pin is None and sums.threads > 1 else pin)
                _check_memory(file, sums)
                events.write_plan(plan)
                writer = arguments.writer(json_file, build, found)
                samples = Samples(csv_file)
            out.print(machine.line(writer.context))
            out.print(show.line(file.name, events.facts, sums))
            outcome = replay.open_outcome(file.name, subject, found)
            replaying = replay.Replays(plan, str(build), found, runs, cpu, timeout, outcome)
            replaying.on_run = functools.partial(_keep, writer, samples, replaying)
            is_stopped = _measure(replaying)
    samples.close()
    out.print("\n", show.outcome(outcome, "" if cpu is None else f", CPU {cpu}"))
    out.print(show.LEGEND)
    failed = any(series.problem and not series.absent for series in outcome.series)
    stopped = "stopped; what was measured until then is above" if is_stopped else ""
    arguments.conclude([writer.problem, samples.problem], stopped, failed)


class Samples:
    """The file of --csv, or none. If it cannot be written, `problem` says so, and measuring goes on."""

    def __init__(self, path: pathlib.Path | None):
        self.problem = ""
        is_special = path and path.exists() and not path.is_file()  # a pipe, for instance
        self.file = path.open("w" if is_special else "x", encoding="utf-8", newline="") if path else None
        self.write([("allocator", "run", "step", "live_kb", "rss_kb")])

    def write(self, rows: Iterable[Sequence]) -> None:
        try:
            if self.file:
                csv.writer(self.file).writerows(rows)
                self.file.flush()
        except OSError as error:
            self.problem = f"samples are no longer stored: {error.strerror}"
            self.close()

    def close(self) -> None:
        file, self.file = self.file, None
        if file:
            with contextlib.suppress(OSError):
                file.close()


@contextlib.contextmanager
def _memory_for(file: pathlib.Path):
    try:
        yield
    except MemoryError:
        arguments.say(f"{file}: there is not enough memory to read it")
        raise typer.Exit(1) from None


def _check_memory(file: pathlib.Path, sums: allocations.Tally) -> None:
    wanted, available = replay.memory_wanted(sums.events, sums.live_peak), replay.memory_available()
    if available and wanted > available:
        raise ValueError(f"a replay of {file} needs {wanted >> 20:,} MiB, and {available >> 20:,} are available")


def _keep(writer: Writer, samples: Samples, of: replay.Replays, allocator, run: int, result: dict, rows: list) -> None:
    work = of.outcome.work
    writer.keep(
        kind="replay", work=work, command=["replay", work], allocator=allocator.name, library=allocator.library,
        version=allocator.version, settings=dict(allocator.settings), run=run, n=of.runs, cpu_pinned=of.cpu,
        load=machine.load(), result=result)  # fmt: skip
    samples.write((allocator.name, run, *row) for row in rows)


def _measure(replaying: replay.Replays) -> bool:
    """Runs them; on a terminal it is said which. True: it was stopped."""
    progress = tables.Line()
    replaying.on_turn = lambda allocator, run: progress.show(f"run {run}/{replaying.runs}, {allocator.name}")
    try:
        replaying.run()
    except KeyboardInterrupt:
        return True
    finally:
        progress.close()
    return False
