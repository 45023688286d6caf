"""Which allocators there are, and the library of each."""

import os
import pathlib
import subprocess
from dataclasses import dataclass
from typing import Optional

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUBJECT = "hakmem"
PEERS = ("glibc", "mimalloc", "jemalloc", "tcmalloc")
INSTALLABLE = PEERS[1:] + ("mimalloc2",)
# Measured and shown, never "the best peer": a prototype shows what is possible, not what users have.
YARDSTICKS = ("proto",)


@dataclass(frozen=True)
class Allocator:
    name: str
    library: Optional[str]  # to preload; None: what libc brings
    missing: str = ""  # why it cannot be measured

    @property
    def is_peer(self):
        return self.name != SUBJECT and self.name not in YARDSTICKS


def _checked(name, path):
    path = os.path.abspath(path)
    return Allocator(name, path, "" if os.path.isfile(path) else f"no file {path}")


def find(word, build_dir, libraries):
    """The allocator that a word of the command line names: NAME or NAME=PATH. ValueError if it names none."""
    name, equals, path = word.partition("=")
    path = path if equals else libraries.get(name, "")
    if path:
        return _checked(name, path)
    if equals or not name:
        raise ValueError(f"'{word}' is not NAME or NAME=PATH")
    if name == "glibc":
        return Allocator(name, None)
    if name == SUBJECT:
        found = _checked(name, os.environ.get("HAK_LIB") or os.path.join(build_dir, "lib", "libhakmem.so"))
        return Allocator(name, found.library, found.missing and found.missing + "; run ./hak build")
    if name in INSTALLABLE:
        door = subprocess.run([str(ROOT / "hak"), "peers", "path", name], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        return _checked(name, door.stdout.strip()) if door.returncode == 0 else Allocator(
            name, None, "not installed; run ./hak peers install")
    raise ValueError(f"unknown allocator '{name}'; known: {', '.join((SUBJECT,) + PEERS)}, or NAME=/path/to/library.so")
