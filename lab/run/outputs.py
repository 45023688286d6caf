"""The files that a verb writes about a program of the user's: FILE, and FILE.PID for each other process."""

import os
import pathlib
import re


def of_others(out: pathlib.Path) -> list[pathlib.Path]:
    """The files of other processes than the first."""
    pattern = re.compile(re.escape(out.name) + r"\.[0-9]+")
    if not out.parent.is_dir():
        return []
    return sorted(path for path in out.parent.iterdir() if pattern.fullmatch(path.name))


def unused(word: str, ending: str) -> pathlib.Path:
    """CMD and ending in the working folder, or CMD-2 and so on: a name that no such file has. word: as CMD is given."""
    stem = os.path.basename(word)
    number = 1
    while True:
        out = pathlib.Path(f"{stem}{ending}" if number == 1 else f"{stem}-{number}{ending}")
        if not os.path.lexists(out) and not of_others(out):
            return out
        number += 1


def check_overwritten(out: pathlib.Path, mark: bytes, kind: str, is_forced: bool) -> list[pathlib.Path]:
    """The files that are there. ValueError if one does not begin with the mark of its kind, or may not go. Empty ones may."""
    there = ([out] if out.exists() else []) + of_others(out)
    for path in there:
        with path.open("rb") as file:
            head = file.read(len(mark))
        if head not in (b"", mark):
            raise ValueError(f"{path} is there and is no {kind}; it is not overwritten")
        if head and not is_forced:
            raise ValueError(f"{path} is there and is not overwritten; --force does that")
    return there
