"""Which allocators there are, and the library of each."""

import functools
import os
import pathlib
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUBJECT = "hakmem"
PEERS = ("glibc", "mimalloc", "jemalloc", "tcmalloc", "mimalloc2", "snmalloc", "rpmalloc")  # the best of all of them
INSTALLABLE = PEERS[1:]
PROFILES = ("speed", "balanced", "lean")
SECURE = f"{SUBJECT}-secure"  # measured by `hak bench security`
OURS = (SUBJECT, *(f"{SUBJECT}-{profile}" for profile in PROFILES), SECURE)
# Measured and shown, never "the best peer": a prototype shows what is possible, not what users have.
YARDSTICKS = ("proto", "before", "after")
KNOWN = f"{', '.join(OURS)}, {', '.join(PEERS)}, or NAME=/path/to/library.so"


@dataclass(frozen=True)
class Allocator:
    name: str
    library: str | None  # to preload; None: what libc brings
    missing: str = ""  # why it cannot be measured
    settings: Mapping[str, str] = field(default_factory=dict)  # its environment variables

    @property
    def is_ours(self) -> bool:
        return self.name in OURS

    @property
    def is_peer(self) -> bool:
        return not self.is_ours and self.name not in YARDSTICKS

    @property
    def version(self) -> str:
        """Of libc, hakmem, what `hak peers` installed, or a package's; "" for another file."""
        if self.library is None:
            return " ".join(os.confstr("CS_GNU_LIBC_VERSION").split()[1:]) if not self.missing else ""
        return _version(os.path.realpath(self.library))


@functools.cache
def _version(library: str) -> str:
    if os.path.dirname(library) == str(ROOT / ".peers"):  # at the version that `hak` pins
        name = os.path.basename(library).removeprefix("lib").removesuffix(".so")
        found = re.search(rf"^{name}_version=(\S+)", (ROOT / "hak").read_text(encoding="utf-8"), re.MULTILINE)
        return found.group(1) if found else ""
    if os.path.basename(library).startswith("libhakmem.so."):
        return os.path.basename(library).removeprefix("libhakmem.so.")
    return _package_version(library)


def _package_version(library: str) -> str:
    """What Debian's package manager knows of the file, without its own revision: 5.3.0 of 5.3.0-1."""
    try:
        said = subprocess.run(["dpkg-query", "-S", library], capture_output=True, text=True, check=True).stdout
        package = said.split(": ")[0].split(",")[0]
        shown = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True,
                               check=True).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return ""
    return shown.split(":")[-1].rsplit("-", 1)[0]


def _checked(name: str, path: str, settings: Mapping[str, str] | None = None) -> Allocator:
    path = os.path.abspath(path)
    return Allocator(name, path, "" if os.path.isfile(path) else f"no file {path}", dict(settings or {}))


def find(word: str, build_dir: str | os.PathLike, libraries: Mapping[str, str] | None = None) -> Allocator:
    """The allocator that a word of the command line names: NAME or NAME=PATH. ValueError if it names none, or a file that
    is not there."""
    name, equals, path = word.partition("=")
    path = path if equals else (libraries or {}).get(name, "")
    if equals and not (name and path):
        raise ValueError(f"'{word}' is not NAME or NAME=PATH")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise ValueError(f"'{name}' is no name for an allocator")
    if path and not os.path.isfile(path):
        raise ValueError(f"{name}: no file {os.path.abspath(path)}")
    if name in OURS:
        path = path or os.environ.get("HAK_LIB") or os.path.join(build_dir, "lib", "libhakmem.so")
        profile = name.removeprefix(SUBJECT).removeprefix("-")
        found = _checked(name, path, {"HAKMEM_PROFILE": profile} if profile else None)
        return Allocator(name, found.library, found.missing and found.missing + "; run: hak build", found.settings)
    if path:
        return _checked(name, path)
    if name == "glibc":
        return Allocator(name, None)
    if name in INSTALLABLE:
        door = subprocess.run([str(ROOT / "hak"), "peers", "path", name], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)  # fmt: skip
        return _checked(name, door.stdout.strip()) if door.returncode == 0 else Allocator(
            name, None, "not installed; run: hak peers install")  # fmt: skip
    raise ValueError(f"unknown allocator '{name}'; known: {KNOWN}")


def find_all(words: str | Iterable[str], build_dir: str | os.PathLike,
             libraries: Mapping[str, str] | None = None) -> list[Allocator]:  # fmt: skip
    """A LIST of the command line: words with commas between. ValueError if one names none, or is there twice, or if
    a library is given for a name that is not in the list."""
    words = words.split(",") if isinstance(words, str) else list(words)
    found = [find(word.strip(), build_dir, libraries) for word in words]
    names = [allocator.name for allocator in found]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise ValueError(f"{', '.join(doubles)} is named twice")
    unused = sorted(set(libraries or ()) - set(names))
    if unused:
        raise ValueError(f"--lib {unused[0]}: no allocator of that name is measured")
    return found
