"""hak record: writes the allocation trace of a program."""

import pathlib
import sys
from typing import Annotated

import typer

from lab.run import foreground, outputs, program, record
from lab.store import trace
from lab.verbs import arguments

SETTINGS = {"allow_interspersed_args": False}
EPILOG = """CMD keeps its input, output and exit status (127: not found); the summary goes to stderr. The trace: every call of
the malloc family, with threads and times, and the call site from 64 KiB on. It has no content of blocks, no paths and
no arguments. Example: hak record --out sort.trace -- sort -u words.txt; hak replay sort.trace --info"""


def run(
    words: Annotated[list[str], typer.Argument(metavar="[--] CMD [ARGUMENT]...", help="the program", show_default=False)],
    out: Annotated[pathlib.Path | None, typer.Option(metavar="FILE",
        help="the trace (CMD.trace, or CMD-2.trace if that is there, ...)")] = None,
    force: Annotated[bool, typer.Option("--force", help="FILE and FILE.PID may be overwritten, if they are traces")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1 << 30, metavar="MB",
        help="recording stops there, for each process; CMD goes on")] = 1024,
    children: Annotated[bool, typer.Option("--children", help="other processes too, each into FILE.PID")] = False,
    build_dir: arguments.BuildDir = None,
) -> None:  # fmt: skip
    build = arguments.build_dir(build_dir)
    with arguments.refusals():
        if not words[0]:
            raise ValueError("CMD is empty")
        recording = record.Recording(words, out or outputs.unused(words[0], record.ENDING), limit << 20, children,
                                     build / "lib" / "libhakrecord.so")  # fmt: skip
    file = arguments.user_program("record", words[0])
    with arguments.refusals():
        record.prepare(recording, force)
    status = record.run(recording, file)
    sys.stdout.flush()
    for path in [recording.out, *outputs.of_others(recording.out)]:
        _report(path, build, file if path == recording.out else "")
    raise typer.Exit(foreground.end_as(status))


def _report(path: pathlib.Path, build: pathlib.Path, file: str) -> None:
    """`file`: the program, if it ought to have been recorded."""
    try:
        if file and path.stat().st_size == 0:
            reason = program.why_no_preload(file)
            why = f"{file} {reason}" if reason else "CMD did not use malloc"
            arguments.say(f"{path}: nothing was recorded: {why}")
            return
        with trace.Trace(path, trace.library_in(build)) as found:
            facts = found.facts
    except FileNotFoundError:
        arguments.say(f"{path} is gone: CMD, or someone else, removed it")
        return
    except (trace.BadTrace, OSError) as error:
        arguments.say(arguments.sentence(error))
        return
    arguments.say(f"{path}: {facts.program}, {facts.raw_events:,} events, {facts.file_bytes / 1e6:.1f} MB")
    if facts.problem:
        arguments.say(f"{path} {facts.problem}")
