"""hak report: the scorecard from stored rows, and the figures in the documents."""

import pathlib
from typing import Annotated

import typer

from lab.run.allocators import ROOT
from lab.verbs import arguments

EPILOG = """Rows are what `hak bench`, `hak soak` and `hak replay` append with --json FILE. Of a workload the latest
session counts that has all peers and runs enough; where such sessions disagree, the page says so. --rows and --soak may
be given several times. A row that is damaged is named, and then nothing is written."""
ROWS = ROOT / "lab" / "results"


def run(
    out: Annotated[pathlib.Path | None, typer.Option(metavar="DIR",
        help="where index.html, scorecard.md and scorecard.json go (build/report)")] = None,
    rows: Annotated[list[pathlib.Path] | None, typer.Option(metavar="FILE",
        help="stored rows (lab/results/*.jsonl)")] = None,
    soak: Annotated[list[pathlib.Path] | None, typer.Option(metavar="FILE.csv",
        help="epochs of a process over time, of hak soak or of others")] = None,
    docs: Annotated[bool, typer.Option("--docs",
        help="instead: fill in the figures of README.md and docs/*.md")] = False,
    check: Annotated[bool, typer.Option("--check",
        help="with --docs: change nothing; status 1 if a figure is stale")] = False,
) -> None:  # fmt: skip
    from lab.store.rows import read

    with arguments.ending(), arguments.refusals():
        if check and not docs:
            raise ValueError("report: --check goes with --docs")
        if docs and (out or soak):
            raise ValueError("report: --docs takes neither --out nor --soak")
        found = read(rows or sorted(ROWS.glob("*.jsonl")))
        if docs:
            fill(found, check)
            return
        scorecard(found, soak or [], out or ROOT / "build" / "report")


def scorecard(rows: list, soaks: list[pathlib.Path], folder: pathlib.Path) -> None:
    from lab.show import scorecard as made
    from lab.show.tail import soak_of_file

    if not rows and not soaks:
        raise ValueError(f"report: there are no rows; make some: {made.COMMAND}")
    found = made.collect(rows, [soak_of_file(path) for path in soaks])
    folder.mkdir(parents=True, exist_ok=True)  # before the pictures, which take long
    texts = made.render(found)
    for path in made.write(texts, folder):
        print(path)


def fill(rows: list, is_check: bool) -> None:
    from lab.show import documents

    stale = documents.fill(ROOT, rows, is_check)
    for place in stale:
        arguments.say(f"{place} is stale; run: hak report --docs" if is_check else f"filled in {place}")
    if stale and is_check:
        raise typer.Exit(1)
