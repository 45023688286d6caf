"""hak soak: one benchmark for minutes in one process, an epoch a second to CSV; or the CSV of others."""

import contextlib
import datetime
import io
import json
import os
import pathlib
from typing import Annotated

import typer

from lab.judge import soak as judge
from lab.run import allocators, machine
from lab.run import soak as running
from lab.store import epochs, rows
from lab.verbs import arguments

EPILOG = f"""NAME of --bench: {", ".join(running.WORKS)}. An allocator is one of {allocators.KNOWN}.
5, 30 and 60 minutes are the usual lengths. Ctrl-C ends a soak early and keeps what there is. docs/soak.md says how to
read the result, and which columns --analyze knows."""
MINUTES_MAX = 60 * 24 * 30.0
EPOCH_S_MIN, EPOCH_S_MAX = 0.01, 86400.0
ANALYZING = ("files", "analyze", "epoch", "warm_up", "json_file", "build_dir")


def run(
    line: typer.Context,
    files: Annotated[list[pathlib.Path] | None, typer.Argument(metavar="FILE", help="with --analyze: CSV files")] = None,
    minutes: Annotated[float, typer.Option(metavar="M", help="how long")] = 5,
    bench: Annotated[str, typer.Option(metavar="NAME", help="what to run")] = "mixed",
    profile: Annotated[str | None, typer.Option(metavar="P", help="hakmem's preset: speed, balanced or lean")] = None,
    allocator: Annotated[str, typer.Option(metavar="NAME", help="or NAME=PATH")] = allocators.SUBJECT,
    out: Annotated[pathlib.Path | None, typer.Option(metavar="DIR", help="where the results go (build/soak)")] = None,
    pin: Annotated[str | None, typer.Option(metavar="CPU",
        help="the last CPU for one thread, none for several")] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="of the random numbers")] = 1,
    epoch: Annotated[float, typer.Option(metavar="S", help="seconds an epoch")] = 1,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="set for the program")] = None,
    warm_up: Annotated[int | None, typer.Option(min=0, metavar="N",
        help="epochs left out of the analysis (a tenth, 5 to 60)")] = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="run nothing; analyze FILEs")] = False,
    json_file: arguments.Rows = None,
    build_dir: arguments.BuildDir = None,
) -> None:  # fmt: skip
    with arguments.refusals():
        if analyze:
            arguments.check_meaning(line, ANALYZING, "--analyze")
        if not EPOCH_S_MIN <= epoch <= EPOCH_S_MAX:
            raise ValueError(f"--epoch: {epoch:g} is not from {EPOCH_S_MIN:g} to {EPOCH_S_MAX:.0f}")
    if analyze:
        _analyze(files or [], epoch, warm_up, json_file)
        return
    build = arguments.build_dir(build_dir)
    with arguments.refusals():
        if files:
            raise ValueError(f"{files[0]}: files are for --analyze")
        if bench not in running.WORKS:
            raise ValueError(f"--bench: unknown benchmark '{bench}'; known: {', '.join(running.WORKS)}")
        if not 0 < minutes <= MINUTES_MAX:
            raise ValueError(f"--minutes: {minutes:g} is not over 0 and up to {MINUTES_MAX:.0f}")
        if epoch > 60 * minutes:
            raise ValueError(f"--epoch: {minutes:g} minutes are over before one of {epoch:g} s is")
        if warm_up and warm_up >= 60 * minutes / epoch:
            raise ValueError(
                f"--warm-up: in {minutes:g} minutes there are no more than {60 * minutes / epoch:.0f} epochs"
            )
        work = running.WORKS[bench]
        found = allocators.find(_with_profile(allocator, profile), build)
        arguments.subject([found])
        settings = arguments.pairs(env, "--env")
        cpu = None if work.threads and pin is None else machine.cpu(pin)
        arguments.check_programs(build, [work.command.split()[0]])
        arguments.check_options(settings, [found], build)
        writer = arguments.writer(json_file, build, [found])
        context = writer.context
        folder = out or allocators.ROOT / "build" / "soak"
        folder.mkdir(parents=True, exist_ok=True)
        name, csv = _fresh(folder, f"{bench}-{found.name}")

    from lab.show import tables

    soak = running.Soak(work.command, found, str(build), 60 * minutes, epoch, seed, cpu, settings, csv.write)
    about = {
        "session": context.session, "commit": context.commit, "flags": context.flags,
        "machine": context.machine.model_dump(), "work": f"soak-{bench}", "seed": seed,
        "command": [os.path.basename(soak.words()[0]), *soak.words()[1:]], "allocator": found.name,
        "library": found.library and os.path.basename(found.library), "version": found.version,
        "settings": settings | dict(found.settings), "cpu_pinned": cpu, "load": machine.load(),
        "minutes": minutes, "epoch_s": epoch,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    console = tables.console()
    console.print(machine.line(context))
    console.print(f"{found.name}: {' '.join(about['command'])}, {minutes:g} minutes, to {folder / name}.csv")
    with arguments.refusals(1):
        try:
            _store(folder / f"{name}.json", about)
        except OSError:
            os.unlink(csv.name)  # nothing is in it
            raise
        ended = _measure(soak, name, csv)
        _store(folder / f"{name}.json", about | {
            "ended": ended.how, "problem": ended.problem, "epochs": ended.epochs, "report": ended.report,
            "complaints": ended.complaints})  # fmt: skip
        what = _load_kept(folder / f"{name}.csv", epoch, warm_up) if ended.epochs else None
        problem = _write(writer, _row(about, *what)) if what else ""
    with contextlib.suppress(OSError):  # the terminal may be gone; all is stored
        _say(ended, name)
        if what:
            from lab.show import soak as show

            console.print(show.analysis({name: what[1]}))
            if problem:
                arguments.say(problem)
    if ended.how != "complete" or not ended.epochs or problem:
        raise typer.Exit(130 if ended.how == "stopped" else 1)


def _measure(soak: running.Soak, name: str, csv: io.FileIO) -> running.Ended:
    """Runs the soak; its epochs go to the CSV first, and then to the line that shows how far it is."""
    from lab.show import soak as show

    progress = show.Progress(name, soak.seconds)

    def keep(line: bytes) -> None:
        csv.write(line)
        first = line.split(b",")
        if first[0] != b"time_s":
            with contextlib.suppress(OSError):  # the terminal is gone
                progress.epoch(float(first[0]), float(first[2]), float(first[3]))

    soak.on_line = keep
    try:
        return soak.run()
    except OSError as error:  # of the CSV: the disk is full
        raise ValueError(f"{os.path.basename(csv.name)}: {error.strerror}; what is there is kept") from None
    finally:
        with contextlib.suppress(OSError):
            progress.close()
        csv.close()


def _say(ended: running.Ended, name: str) -> None:
    for line in ended.complaints:
        arguments.say(line)
    if ended.problem:
        arguments.say(f"{name}: {ended.problem}; {ended.epochs} epochs are kept")
    if ended.how == "stopped":
        arguments.say(f"stopped after {ended.epochs} epochs, which are kept")
    if not ended.epochs:
        arguments.say("not one epoch was finished: nothing to analyze")


def _with_profile(word: str, profile: str | None) -> str:
    name, equals, path = word.partition("=")
    if profile is None:
        return word
    if name != allocators.SUBJECT:
        raise ValueError(f"--profile is for {allocators.SUBJECT}, not for {name}")
    if profile not in allocators.PROFILES:
        raise ValueError(f"--profile: unknown profile '{profile}'; known: {', '.join(allocators.PROFILES)}")
    return f"{name}-{profile}{equals}{path}"


def _fresh(folder: pathlib.Path, stem: str) -> tuple[str, io.FileIO]:
    """A name that no result there has, and its CSV: STEM, STEM-2, STEM-3 ..."""
    number = 1
    while True:
        name = stem if number == 1 else f"{stem}-{number}"
        if not (folder / f"{name}.json").exists():
            try:
                return name, epochs.create(folder / f"{name}.csv")
            except FileExistsError:
                pass
        number += 1


def _store(path: pathlib.Path, about: dict) -> None:
    """Whole or not at all."""
    from lab.show import files

    files.write({path: json.dumps(about, indent=2) + "\n"})


def _load(path: pathlib.Path, epoch_s: float, warm_up: int | None) -> tuple[judge.Epochs, judge.Analysis]:
    read = epochs.read(path, epoch_s)
    try:
        return read, judge.analyze(read, warm_up)
    except ValueError as error:
        raise epochs.BadEpochs(f"{path.name}: {error}") from None


def _load_kept(path: pathlib.Path, epoch_s: float, warm_up: int | None) -> tuple[judge.Epochs, judge.Analysis]:
    """Of a soak that may have ended early: what there is of it is analyzed."""
    read = epochs.read(path, epoch_s)
    if warm_up is not None and warm_up >= len(read):
        with contextlib.suppress(OSError):
            arguments.say(
                f"--warm-up {warm_up} leaves none of {len(read)} epochs: {judge.warm_up(len(read))} are left out"
            )
        warm_up = None
    return read, judge.analyze(read, warm_up)


def _row(about: dict, read: judge.Epochs, found: judge.Analysis) -> dict:
    """For rows.Writer.write. KeyError if `about` lacks something."""
    result = judge.figures(found)
    if read.rss_kb is not None:
        result["curve_s"], result["curve_rss_kb"] = judge.curve(read)
    return {"kind": "soak", "run": 1, "n": 1, "result": result} | {key: about[key] for key in (
        "work", "command", "seed", "allocator", "library", "version", "settings", "cpu_pinned", "load")}  # fmt: skip


def _write(writer: rows.Writer, row: dict) -> str:
    """What went wrong, in one sentence."""
    try:
        writer.write(**row)
        return ""
    except OSError as error:
        return f"--json: {error.strerror}; the CSV is kept, for --analyze"


def _analyze(files: list[pathlib.Path], epoch_s: float, warm_up: int | None, json_file: pathlib.Path | None) -> None:
    with arguments.refusals():
        if not files:
            raise ValueError("--analyze needs a FILE")
        loaded = [_load(path, epoch_s, warm_up) for path in files]
        if json_file:
            made = [_analyzed_row(path, *what) for path, what in zip(files, loaded, strict=True)]
            with open(json_file, "a", encoding="utf-8") as file:
                file.writelines(rows.dump(row) + "\n" for row in made)

    from lab.show import soak as show
    from lab.show import tables

    stems = [path.stem for path in files]
    names = stems if len(set(stems)) == len(stems) else [f"{i}: {stem}" for i, stem in enumerate(stems, 1)]
    tables.console().print(show.analysis({name: found for name, (_, found) in zip(names, loaded, strict=True)}))


def _analyzed_row(path: pathlib.Path, read: judge.Epochs, found: judge.Analysis) -> rows.Row:
    """A row must say where and when it was measured: what hak soak stored beside the CSV."""
    beside = path.with_suffix(".json")
    try:
        about = json.loads(beside.read_text(encoding="utf-8"))
        context = rows.Context(session=about["session"], commit=about["commit"], flags=about["flags"],
                               machine=rows.Machine(**about["machine"]))  # fmt: skip
        started = datetime.datetime.fromisoformat(about["started"]).astimezone(datetime.UTC)
        made = rows.Writer(None, context).write(**_row(about, read, found))
        return made.model_copy(update={"time": started})
    except FileNotFoundError:
        raise ValueError(
            f"--json: a row says where it was measured, and {beside.name} is not beside {path.name}"
        ) from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{beside.name}: not what hak soak writes beside its CSV") from None
