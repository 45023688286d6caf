"""Runs a program of the user's with the recorder preloaded. The program keeps its input, output and place in the
foreground; only its environment has more in it."""

import pathlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from lab.run import foreground, outputs, process, program

ENDING = ".trace"
MARK = b"hak\x1a"  # how a trace begins


@dataclass(frozen=True)
class Recording:
    words: Sequence[str]
    out: pathlib.Path
    limit_bytes: int
    is_with_children: bool
    library: pathlib.Path  # libhakrecord.so


def prepare(recording: Recording, is_forced: bool = False) -> None:
    """Makes the file, empty. ValueError if that would cost the user something; `is_forced`: traces may go."""
    if not recording.library.is_file():
        raise ValueError(f"no {recording.library}; run: hak build")
    if recording.out.exists() and not recording.out.is_file():
        raise ValueError(f"{recording.out} is not a file")
    outputs.check_overwritten(recording.out, MARK, "trace", is_forced)
    recording.out.write_bytes(b"")
    for path in outputs.of_others(recording.out):
        path.unlink()


def _environment(recording: Recording, links: process.Links) -> dict[str, str]:
    found = program.users_environment()
    found["LD_PRELOAD"] = links.in_front(str(recording.library), found)
    found |= {
        "HAK_RECORD_FILE": str(recording.out.absolute()),
        "HAK_RECORD_RUN": str(secrets.randbits(63)),
        "HAK_RECORD_LIMIT": str(recording.limit_bytes),
    }
    if recording.is_with_children:
        found["HAK_RECORD_CHILDREN"] = "1"
    return found


def run(recording: Recording, file: str) -> int:
    """Runs the file that CMD names: the program's wait status."""
    links = process.Links()
    return foreground.run(file, recording.words, _environment(recording, links), "HAK_RECORD_PID")[1]
