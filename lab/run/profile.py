"""Runs a program of the user's on hakmem with the heap profiler on: its profile, and those of its children."""

import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

from lab.run import foreground, outputs, process, program
from lab.store.profile import GZIP

ENDING = ".pb.gz"
PROCESS = "%p"  # HAKMEM_HEAP_PROFILE_FILE has the process id there, and a % for %%


@dataclass(frozen=True)
class Profiling:
    words: Sequence[str]
    out: pathlib.Path
    period_kb: int
    library: pathlib.Path  # libhakmem.so


def prepare(profiling: Profiling, is_forced: bool = False) -> None:
    """Makes room for the files. ValueError if that would cost the user something; `is_forced`: profiles may go."""
    out = profiling.out
    if PROCESS in out.name:
        raise ValueError(f"{out}: {PROCESS} means nothing here, each further process writes FILE.PID; use another name")
    if not profiling.library.is_file():
        raise ValueError(f"no {profiling.library}; run: hak build")
    if not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise ValueError(f"{out.parent} is no folder that can be written to")
    if os.path.lexists(out) and not out.is_file():
        raise ValueError(f"{out} is not a file")
    for path in outputs.check_overwritten(out, GZIP, "profile", is_forced):
        path.unlink()


def _environment(profiling: Profiling, links: process.Links) -> dict[str, str]:
    found = program.users_environment()
    return found | {
        "LD_PRELOAD": links.in_front(str(profiling.library), found),
        "HAKMEM_HEAP_PROFILE": "on",
        "HAKMEM_HEAP_PROFILE_KB": str(profiling.period_kb),
        "HAKMEM_HEAP_PROFILE_FILE": f"{str(profiling.out.absolute()).replace('%', '%%')}.{PROCESS}",
    }


def run(profiling: Profiling, file: str) -> int:
    """Runs the file that CMD names: the program's wait status. Its profile is `out`, if it wrote one."""
    links = process.Links()
    pid, status = foreground.run(file, profiling.words, _environment(profiling, links))
    own = profiling.out.with_name(f"{profiling.out.name}.{pid}")
    if own.exists():
        own.rename(profiling.out)
    return status
