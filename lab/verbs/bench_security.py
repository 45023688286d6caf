"""hak bench security: how much misuse of the heap an allocator notices, and what that costs."""

import functools
import pathlib

from lab.run import machine, rounds, security
from lab.run.allocators import Allocator
from lab.show import security as show
from lab.store.rows import Writer
from lab.verbs import arguments


def run(found: list[Allocator], subject: str, measuring: rounds.Rounds, writer: Writer) -> None:
    """The subject's rate is what the others are compared with."""
    out = arguments.open_console(writer.context)
    measuring.on_run = functools.partial(_keep, writer, measuring)
    outcome, entries = measuring.open_row(security.RATE_ROW, found, subject)
    counts, problems, is_stopped = {}, {}, False
    with arguments.ending():
        try:
            for entry in entries:
                name = entry.allocator.name
                counts[name], problems[name] = security.count(
                    measuring.build_dir, entry.allocator, measuring.links, measuring.timeout, measuring.settings)  # fmt: skip
                if not problems[name]:
                    writer.keep(
                        kind="security", work=security.MISUSE, command=security.WORDS, allocator=name,
                        library=entry.allocator.library, version=entry.allocator.version, run=1, n=1,
                        settings=measuring.settings | dict(entry.allocator.settings), load=machine.load(),
                        is_tiny=measuring.is_tiny, result=counts[name])  # fmt: skip
            measuring.run_row(security.RATE_ROW, entries)
        except KeyboardInterrupt:
            is_stopped = True
    out.print("\n", show.table(counts, problems, outcome))
    failed = any((problems.get(series.name) or series.problem) and not series.absent for series in outcome.series)
    arguments.conclude([writer.problem], "stopped before the end" if is_stopped else "", failed)


def check(build: pathlib.Path, words: list[str]) -> None:
    """ValueError if it cannot run."""
    if words:
        raise ValueError(f"security takes no further NAME, not '{words[0]}'")
    arguments.check_programs(build, [security.PROGRAM, security.RATE_ROW.command.split()[0]])


def _keep(writer: Writer, measuring: rounds.Rounds, row, entry, run: int, result: dict) -> None:
    writer.keep(kind="security", **measuring.fields(row, entry, run, result))
