"""What a command of the user's is: the file it names, why a preload may not reach it, and whose malloc it got.

Whose malloc: the loader of glibc reports how it binds symbols (LD_DEBUG=bindings), libc's own use of malloc included,
into a file for each process. A process that takes `malloc` from the preloaded library runs on it; where the program
has a malloc linked into itself, or the library could not be loaded, none of its bindings goes there.
"""

import os
import pathlib
import re
import shutil
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.run.allocators import ROOT

SCRIPT_DEPTH = 4  # interpreters that are scripts themselves; the kernel's limit
PT_INTERP = 3
BOUND = re.compile(rb"binding file (.+) \[\d+\] to (.+) \[\d+\]: normal symbol `malloc'")


class Refused(Exception):
    """Why CMD cannot be compared, in one sentence. status: of the verb; shell_status: what a shell ends with that is
    given such a command (126: not executable, 127: not found)."""

    def __init__(self, text: str, status: int = 1, shell_status: int = 127):
        super().__init__(text)
        self.status, self.shell_status = status, shell_status


def users_environment() -> dict[str, str]:
    """This process's variables without what `hak` put in."""
    found = {name: value for name, value in os.environ.items() if name != "HAK_LIB"}
    # `hak` puts its own folder in front.
    paths = [path for path in found.pop("PYTHONPATH", "").split(":") if path and path != str(ROOT)]
    return found | ({"PYTHONPATH": ":".join(paths)} if paths else {})


def find(word: str, path: str | None) -> str:
    """The file that CMD names, as a shell finds it."""
    if not word:
        raise Refused("CMD is empty", 2)
    found = shutil.which(word, path=path)
    if found:
        return found
    if os.path.dirname(word) and os.path.exists(word):
        raise Refused(f"{word}: not an executable file", 2, 126)
    raise Refused(f"{word}: command not found", 2)


def _interpreter(file: str, depth: int) -> str | None:
    """The last interpreter of a script: its file."""
    with open(file, "rb") as script:
        words = script.readline(256)[2:].split()
    if not words or depth == 0:
        return None
    return os.fsdecode(words[0])


def _elf_reason(head: bytes) -> str:
    """Why ours cannot be preloaded into an ELF file that begins like this; "" if nothing speaks against it."""
    if head[4] != struct.calcsize("P") // 4:
        return "is built for another word size, which the libraries do not fit"
    order = "<" if head[5] == 1 else ">"
    wide = head[4] == 2
    table, size, count = (
        struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)[0],
        *struct.unpack_from(order + "HH", head, 54 if wide else 42),
    )
    if table + size * count > len(head):
        return ""
    for at in range(table, table + size * count, size):
        if struct.unpack_from(order + "I", head, at)[0] == PT_INTERP:
            offset = struct.unpack_from(order + ("Q" if wide else "I"), head, at + (8 if wide else 4))[0]
            loader = head[offset : head.find(b"\0", offset)].decode(errors="replace")
            return "is built for musl's libc, where libraries for glibc cannot be loaded" if "musl" in loader else ""
    return "is statically linked, so nothing can be preloaded into it"


def why_no_preload(file: str, depth: int = SCRIPT_DEPTH) -> str:
    """The end of a sentence about the file (a script: its interpreter); "" if a preload should work."""
    try:
        what = os.stat(file)
        with open(file, "rb") as program:
            head = program.read(65536)
        if head[:2] == b"#!":
            interpreter = _interpreter(file, depth)
            reason = why_no_preload(interpreter, depth - 1) if interpreter else ""
            return f"is a script of {interpreter}, which {reason}" if reason else ""
    except OSError:
        return ""
    if head[:4] != b"\x7fELF":
        return ""
    for bit, word, ours in ((stat.S_ISUID, "set-uid", os.getuid() == what.st_uid),
                            (stat.S_ISGID, "set-gid", os.getgid() == what.st_gid)):  # fmt: skip
        if what.st_mode & bit and not ours:
            return f"is {word}, and the loader preloads nothing into such a program"
    if os.getuid() and "security.capability" in os.listxattr(file):
        return "has file capabilities, and the loader preloads nothing into such a program"
    try:
        return _elf_reason(head)
    except (struct.error, IndexError):
        return ""


@dataclass(frozen=True)
class Served:
    """Where the processes of one run took malloc from: each process's sources, real paths or names of programs."""

    sources: Mapping[int, frozenset[str]] = field(default_factory=dict)

    def by(self, library: str) -> bool:
        """Did a process take its malloc from this library?"""
        return any(os.path.realpath(library) in found for found in self.sources.values())

    def not_by(self, library: str) -> str:
        """Where a process that did not has it from; "" if all did."""
        # A program without PIE that takes malloc's address is named beside the library.
        for found in self.sources.values():
            if os.path.realpath(library) not in found:
                return min(found)
        return ""

    @property
    def own(self) -> str:
        """The malloc that a program brings along, where nothing is preloaded; "" if all use libc's."""
        for found in self.sources.values():
            if not any(os.path.basename(name).startswith("libc.so") for name in found):
                return min(found)
        return ""


def bindings(folder: str) -> dict[str, str]:
    """The variables that make the loader report into this folder."""
    return {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": os.path.join(folder, "bindings")}


def served(folder: str) -> Served:
    """What it reported. Links must still be there."""
    sources = {}
    for file in pathlib.Path(folder).glob("bindings.*"):
        found = set()
        with file.open("rb") as lines:
            for line in lines:
                if match := BOUND.search(line):
                    found.add(os.fsdecode(match[2]))
        if found:
            sources[int(file.suffix[1:])] = frozenset(os.path.realpath(name) if "/" in name else name for name in found)
    return Served(sources)


def libc() -> str:
    """The libc that this process runs on."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next(line.split()[5] for line in maps if re.search(r"/libc\.so\.\d+$|/libc-[\d.]+\.so$", line.rstrip()))
