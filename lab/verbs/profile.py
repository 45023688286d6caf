"""hak profile: heap profiles. Runs a program with the profiler on; prints and draws what profiles say."""

import os
import pathlib
import shlex
import sys
from enum import StrEnum
from typing import Annotated

import typer

from lab.judge import stacks
from lab.run import foreground, names, outputs, program
from lab.run import profile as run_profile
from lab.store import profile as stored
from lab.verbs import arguments

SETTINGS = {"allow_interspersed_args": False}
EPILOG = """CMD keeps its input, output and exit status (127: not found); what is said goes to stderr. Other processes that
CMD starts have profiles of their own, FILE.PID; what is printed and drawn is of the one with the most. Also: hak profile
top PROFILE, hak profile flame PROFILE (--help says more). docs/profiling.md tells what the figures mean."""
DRAWN = (".html", ".svg")


class Kind(StrEnum):
    live = "live"
    allocated = "allocated"
    peak = "peak"


Chosen = Annotated[
    Kind, typer.Option("--kind", help="bytes that are live, were ever allocated, or were live at the peak")
]
Path = Annotated[pathlib.Path, typer.Argument(metavar="PROFILE", help="a heap profile, of hakmem or in its form")]
STACKS = 10
PROCESSES = 5  # whose profiles are named


def run(
    words: Annotated[list[str], typer.Argument(metavar="[--] CMD [ARGUMENT]...", help="the program", show_default=False)],
    out: Annotated[pathlib.Path | None, typer.Option(metavar="FILE",
        help="the profile (CMD.pb.gz, or CMD-2.pb.gz if that is there, ...)")] = None,
    force: Annotated[bool, typer.Option("--force", help="FILE and FILE.PID may be overwritten, if they are profiles")] = False,
    kb: Annotated[int, typer.Option("--kb", min=0, max=1 << 20, metavar="N",
        help="a sample each so many KiB; 0: every allocation")] = 512,
    kind: Chosen = Kind.peak,
    flame: Annotated[pathlib.Path | None, typer.Option(metavar="FILE.html|FILE.svg", help="also draw a flame graph")] = None,
) -> None:  # fmt: skip
    with arguments.refusals():
        if not words[0]:
            raise ValueError("CMD is empty")
        _check_drawn(flame)
        profiling = run_profile.Profiling(
            words, out or outputs.unused(words[0].replace("%", "_"), run_profile.ENDING), kb, arguments.library()
        )
    file = arguments.user_program("profile", words[0])
    with arguments.refusals():
        run_profile.prepare(profiling, force)
    status = run_profile.run(profiling, file)
    sys.stdout.flush()
    _after(profiling, file, kind, flame)
    raise typer.Exit(foreground.end_as(status))


def _after(profiling: run_profile.Profiling, file: str, kind: Kind, flame: pathlib.Path | None) -> None:
    """Says what there is. The program has ended: nothing that is wrong here changes its exit status."""
    there = [path for path in (profiling.out, *outputs.of_others(profiling.out)) if path.exists()]
    if profiling.out not in there:
        reason = program.why_no_preload(file)
        why = f"{file} {reason}" if reason else "CMD was killed, or did not end by exit, or did not use malloc"
        arguments.say(f"{profiling.out}: no profile was written: {why}")
    found: dict[pathlib.Path, stored.Profile] = {}
    for path in there:
        try:
            found[path] = stored.read(path)
        except (stored.BadProfile, OSError) as error:
            arguments.say(arguments.sentence(error))
    for path in [path for path, profile in found.items() if not profile.samples and path != profiling.out]:
        path.unlink()  # of a process that allocated next to nothing
        del found[path]
    if not found:
        return
    largest = max(found, key=lambda path: names.total(found[path], kind).bytes)
    try:
        _report(found, largest, kind, flame)
    except (ValueError, OSError) as error:
        arguments.say(arguments.sentence(error))


def _report(found: dict, largest: pathlib.Path, kind: Kind, flame: pathlib.Path | None) -> None:
    from lab.show import profile as show
    from lab.show import tables

    named = names.name(found[largest])
    about = stacks_of(named, largest, kind)
    out = tables.console(to_stderr=True)
    held = {path: names.total(profile, kind).bytes for path, profile in found.items()}
    listed = sorted(held, key=lambda path: -held[path])
    for path in listed[:PROCESSES]:
        arguments.say(f"{path}: {show.plain(found[path].program)}, {show.size(held[path])} {show.OF_KIND[kind]}")
    if len(listed) > PROCESSES:
        arguments.say(f"and {len(listed) - PROCESSES} more, of processes with less")
    out.print(show.largest(about, kind, STACKS))
    for note in show.notes(named):
        arguments.say(note)
    if flame:
        _draw(named, about, largest, kind, flame)
        arguments.say(f"flame graph: {flame}")
    word = shlex.quote(str(largest))
    arguments.say(
        f"more: hak profile top --kind {kind} {word}, hak profile flame --kind {kind} {word}, go tool pprof -http=: {word}"
    )


# --- profiles that are there ---------------------------------------------------------------------------


def top(
    path: Path,
    kind: Chosen = Kind.live,
    by_stack: Annotated[bool, typer.Option("--stacks", help="whole stacks instead of functions")] = False,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="rows")] = 20,
) -> None:
    from lab.show import profile as show
    from lab.show import tables

    with arguments.refusals():
        named = names.name(stored.read(path))
        found = stacks_of(named, path, kind)
    out = tables.console()
    out.print(f"{show.plain(path.name)}: {show.summary(named)}", markup=False, soft_wrap=True)
    out.print((show.largest if by_stack else show.functions)(found, kind, count))
    for note in show.notes(named):
        arguments.say(note)


def flame(
    path: Path,
    kind: Chosen = Kind.live,
    out: Annotated[pathlib.Path | None, typer.Option(metavar="FILE.html|FILE.svg", help="the picture (PROFILE.html)")] = None,
) -> None:  # fmt: skip
    with arguments.refusals():
        _check_drawn(out)
        named = names.name(stored.read(path))
        target = out or path.with_name(path.name.removesuffix(run_profile.ENDING) + ".html")
        if target.exists() and target.samefile(path):
            raise ValueError(f"{target} is the profile itself")
        _draw(named, stacks_of(named, path, kind), path, kind, target)
    print(target)


def stacks_of(named: names.Named, path: pathlib.Path, kind: Kind) -> list[stacks.Stack]:
    try:
        return named.stacks(kind)
    except stored.BadProfile as error:
        raise stored.BadProfile(f"{path} {error}") from None


def _check_drawn(out: pathlib.Path | None) -> None:
    if out and out.suffix not in DRAWN:
        raise ValueError(f"a flame graph is a file in {' or '.join(DRAWN)}, not {out}")
    if out and out.is_dir():
        raise ValueError(f"{out} is not a file")
    if out and not os.access(out.parent, os.W_OK):
        raise ValueError(f"{out.parent} is no folder that can be written to")


def _draw(named: names.Named, found: list[stacks.Stack], path: pathlib.Path, kind: Kind, out: pathlib.Path) -> None:
    from lab.show import files
    from lab.show import flame as drawn
    from lab.show import profile as show

    root = stacks.tree(found)
    if not root.children:
        raise ValueError(f"{path}: nothing is {show.OF_KIND[kind]}; there is nothing to draw")
    name = f"{path.name}: {show.OF_KIND[kind]}"
    is_page = out.suffix == ".html"
    files.write(
        {out: drawn.html(root, name, show.summary(named), show.notes(named)) if is_page else drawn.svg(root, name)}
    )


# Words that stand for CMD: what `hak profile WORD` is -> its function and what its help says.
WORDS = {
    "top": (top, "Prints the largest functions, or stacks, of a heap profile."),
    "flame": (flame, "Draws a flame graph of a heap profile: a page with zoom and search, or SVG."),
}
