"""What the command lines of the verbs have in common."""

import contextlib
import os
import pathlib
import re
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import typer

from lab.run import machine, process, program
from lab.run.allocators import ROOT, SUBJECT, Allocator
from lab.store.rows import Context, Writer

# Options that several verbs have.
Libraries = Annotated[list[str] | None, typer.Option(metavar="NAME=PATH", help="the library of an allocator")]
Rounds = Annotated[int, typer.Option(min=1, metavar="N", help="runs of each, after one that is dropped")]
Timeout = Annotated[float, typer.Option(min=0.001, metavar="S", help="seconds a run may take")]
Rows = Annotated[pathlib.Path | None, typer.Option("--json", metavar="FILE",
                                                   help="append what is measured, one JSON object a line")]  # fmt: skip
BuildDir = Annotated[pathlib.Path | None, typer.Option(metavar="DIR", help="where bin/ and lib/ are (build/release)")]


def say(sentence: str) -> None:
    print(f"hak: {sentence}", file=sys.stderr)


def sentence(error: ValueError | OSError) -> str:
    """What the user is told of it."""
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)


@contextlib.contextmanager
def refusals(status: int = 2):
    """A ValueError or OSError inside is one sentence for the user: wrong usage."""
    try:
        yield
    except (ValueError, OSError) as error:
        say(sentence(error))
        raise typer.Exit(status) from None


def _interrupted(number, _frame):
    """What was started is cleared away undisturbed: a terminal that is closed may send a second SIGHUP, and an impatient
    user a second SIGINT."""
    process.asked_to_end.append(number)
    for other in process.ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def ending():
    """Inside, what ends a program, or closes its terminal, is like Ctrl-C: what runs is ended, what is known is shown. If
    nobody inside shows it, the verb ends."""
    # What `nohup` has switched off stays so.
    heard = [number for number in process.ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupted) for number in heard}
    try:
        yield
    except KeyboardInterrupt:
        say("stopped")
        raise typer.Exit(130) from None
    finally:
        process.asked_to_end.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def user_program(verb: str, word: str) -> str:
    """The file that CMD names. Without one the verb ends as a shell would."""
    try:
        return program.find(word, None)
    except program.Refused as refused:
        say(f"{verb}: {refused}")
        raise typer.Exit(refused.shell_status) from None


def build_dir(given: pathlib.Path | None) -> pathlib.Path:
    """Where bin/ and lib/ are. One that is asked for has its own library; `hak` names that of the release build."""
    if given:
        os.environ.pop("HAK_LIB", None)
    return pathlib.Path(os.path.abspath(given or os.environ.get("HAK_BUILD") or ROOT / "build" / "release"))


def library() -> pathlib.Path:
    """libhakmem.so, as `hak` found it."""
    return pathlib.Path(os.environ.get("HAK_LIB") or build_dir(None) / "lib" / "libhakmem.so")


def check_programs(build: pathlib.Path, programs: Iterable[str]) -> None:
    lost = sorted(name for name in {*programs, "measure"} if not os.access(build / "bin" / name, os.X_OK))
    if lost:
        raise ValueError(f"no {lost[0]} in {build / 'bin'}; run: hak build")


def check_meaning(context: typer.Context, meant: Iterable[str], what: str) -> None:
    """ValueError if the command line has an option that is not among those that mean something to `what`."""
    for option in context.command.params:
        if context.get_parameter_source(option.name).name == "COMMANDLINE" and option.name not in meant:
            raise ValueError(f"{option.opts[0]} means nothing to {what}")


def pairs(words: Iterable[str] | None, what: str) -> dict[str, str]:
    for word in words or ():
        if not word.partition("=")[0] or "=" not in word:
            raise ValueError(f"{what} takes NAME=VALUE, not '{word}'")
    return dict(word.split("=", 1) for word in words or ())


def check_options(settings: Mapping[str, str], found: Iterable[Allocator], build: pathlib.Path) -> None:
    """ValueError if hakmem does not take one of its options: it says so on the programs' stderr, which nobody sees."""
    ours = next((allocator for allocator in found if allocator.is_ours and not allocator.missing), None)
    if ours is None or not any(name.startswith("HAKMEM_") for name in settings):
        return
    links = process.Links()
    # With any value it shows whether there is such an option, and a file is not to be written now.
    settings = {name: "" if name.endswith("_FILE") else value for name, value in settings.items()}
    environment, added = process.clean_environment(settings), process.variables(ours, links)
    said = process.run(["true"], environment, added, build_dir=str(build)).stderr.decode(errors="replace")
    if refused := re.search(r"^hakmem: (HAKMEM_.*?)(, ignored|; default kept)", said, re.MULTILINE):
        raise ValueError(f"--env: {refused[1]}; hak options lists all")


def subject(found: Sequence[Allocator]) -> str:
    """The one that the others are compared with: hakmem, or else the first. ValueError if it is not there."""
    name = SUBJECT if SUBJECT in {allocator.name for allocator in found} else found[0].name
    missing = next(allocator.missing for allocator in found if allocator.name == name)
    if missing:
        raise ValueError(f"{name}: {missing}")
    return name


def writer(path: pathlib.Path | None, build: pathlib.Path, found: Iterable[Allocator]) -> Writer:
    """Of --json, for rows of these allocators."""
    ours = [allocator.library for allocator in found if allocator.is_ours and not allocator.missing]
    try:
        return Writer(path, machine.context(build, ours))
    except OSError as error:
        raise ValueError(f"--json: {path}: {error.strerror}") from None


def conclude(problems: Iterable[str], stopped: str, is_failed: bool) -> None:
    """The end of a measuring verb. stopped: what is said if it was; else ""."""
    lost = [problem for problem in problems if problem]
    for sentence in (*lost, stopped):
        if sentence:
            say(sentence)
    if stopped or is_failed or lost:
        raise typer.Exit(130 if stopped else 1)


def open_console(context: Context):
    """What a measuring verb prints to; it begins with the machine, and whether that has other work."""
    from lab.show import tables

    out = tables.console()
    out.print(machine.line(context))
    if machine.load() > context.machine.cpus / 2:
        out.print(f"load average {machine.load():.1f} on {context.machine.cpus} CPUs: others run here, expect noise")
    return out
