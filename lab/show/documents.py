"""The figures in documents: text between two marks is made from the stored rows by a template.

    <!-- figures: NAME WORD... -->
    made by templates/docs/NAME.md.j2, which asks lab/show/quoted.py
    <!-- end figures -->

In one line it works within a sentence: of mimalloc <!-- figures: ratio mixed mimalloc -->1.05<!-- end figures -->.
The plots that documents show are files in docs/figures, which lab/show/drawn.py draws.
"""

import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

from lab.show import drawn, files, quoted
from lab.store.rows import Row

MARK = re.compile(r"<!--\s*(?:figures:\s*(?P<head>[^>]*?)|(?P<end>end figures))\s*-->")


def blocks(text: str, where: str) -> list[tuple[int, int, list[str]]]:
    """(begin, end, words) of the text within each pair of marks. ValueError with where:line if they do not pair."""
    found, opened = [], None
    for mark in MARK.finditer(text):
        place = f"{where}:{text.count(chr(10), 0, mark.start()) + 1}"
        if mark["end"]:
            if opened is None:
                raise ValueError(f"{place}: an end of figures without a beginning")
            found.append((opened[0], mark.start(), opened[1]))
            opened = None
        elif opened is not None:
            raise ValueError(f"{place}: figures within figures")
        elif not re.fullmatch(r"[a-z][a-z0-9-]*( \S+)*", mark["head"]):
            raise ValueError(f"{place}: '{mark['head']}' is no name of figures")
        else:
            opened = mark.end(), mark["head"].split(), place
    if opened is not None:
        raise ValueError(f"{opened[2]}: figures without an end")
    return found


def filled(text: str, render: Callable[[Sequence[str]], str], where: str) -> tuple[str, list[str]]:
    """The text with its figures made anew, and where:line of each block that differs."""
    parts, stale, last = [], [], 0
    for begin, end, words in blocks(text, where):
        line = text.count("\n", 0, begin) + 1
        try:
            made = render(words)
        except ValueError as error:
            raise ValueError(f"{where}:{line}: {error}") from None
        body = text[begin:end]
        made = f"\n{made}\n" if "\n" in body else " ".join(made.split())
        if made != body:
            stale.append(f"{where}:{line}: block '{' '.join(words)}'")
        parts += [text[last:begin], made]
        last = end
    return "".join([*parts, text[last:]]), stale


def paths(tree: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in (tree / "README.md", *sorted((tree / "docs").glob("*.md"))) if path.is_file()]


def plots(tree: pathlib.Path, rows: Sequence[Row]) -> dict[pathlib.Path, str]:
    """Those of a tree that has some, drawn anew."""
    folder = tree / drawn.FOLDER
    return {folder / name: text for name, text in drawn.draw(rows).items()} if folder.is_dir() else {}


def fill(tree: pathlib.Path, rows: Sequence[Row], is_check: bool = False) -> list[str]:
    """Makes the figures of all documents of the tree anew, or of none if a mark is wrong. Says which blocks were stale.
    is_check: changes nothing."""
    texts: Mapping[pathlib.Path, str] = {path: path.read_text(encoding="utf-8") for path in paths(tree)}
    if not any(MARK.search(text) for text in texts.values()):
        return []
    render, stale, changed = quoted.renderer(rows), [], {}
    for path, made in plots(tree, rows).items():
        if not path.is_file() or path.read_text(encoding="utf-8") != made:
            stale.append(f"{path.relative_to(tree)}")
            changed[path] = made
    for path, text in texts.items():
        made, found = filled(text, render, str(path.relative_to(tree)))
        stale += found
        if found:
            changed[path] = made
    if not is_check:
        files.write(changed)
    return stale
