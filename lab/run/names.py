"""Names for the stacks of a profile: functions of the files that its mappings name, C++ and Rust in readable form."""

import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from lab.judge.stacks import Frame, Stack, Weight
from lab.store.profile import BadProfile, Location, Mapping, Profile
from lab.store.symbols import DEBUG, Symbols

MANGLED = re.compile(r"_{1,2}[ZR][\w.$@]*", re.ASCII)
DEMANGLE_SECONDS = 60
DEPTH_MAX = 64  # of hakmem's stacks (SAMPLES_DEPTH_MAX)
BEYOND = Frame(f"[callers beyond {DEPTH_MAX} frames]")

# What a profile can be asked for -> its bytes and objects, as pprof calls them.
KINDS = {
    "live": ("inuse_space", "inuse_objects"),
    "allocated": ("alloc_space", "alloc_objects"),
    "peak": ("peak_space", "peak_objects"),
}


@dataclass
class Named:
    """A profile whose locations have names."""

    profile: Profile
    frames: dict[int, tuple[Frame, ...]]  # by location, the outermost first
    notes: list[str]  # why there are addresses instead of names

    def stacks(self, kind: str) -> list[Stack]:
        """Raises BadProfile: the end of a sentence about the file."""
        bytes_name, objects_name = KINDS[kind]
        if bytes_name not in self.profile.kinds:
            known = ", ".join(self.profile.kinds)
            raise BadProfile(f"does not say what is {kind} ({bytes_name}): it has {known}")
        column = self.profile.kinds.index(bytes_name)
        count = self.profile.kinds.index(objects_name) if objects_name in self.profile.kinds else None
        return [Stack(self._frames(ids), Weight(values[column], 0 if count is None else values[count]))
                for ids, values in self.profile.samples]  # fmt: skip

    def _frames(self, ids: tuple[int, ...]) -> tuple[Frame, ...]:
        found = tuple(frame for number in reversed(ids) for frame in self.frames[number])
        is_cut = len(ids) == DEPTH_MAX and any(one.startswith("hakmem") for one in self.profile.comments[:1])
        return (BEYOND, *found) if is_cut else found

    def has(self, kind: str) -> bool:
        return KINDS[kind][0] in self.profile.kinds


def total(profile: Profile, kind: str) -> Weight:
    """Nothing if the profile does not say."""
    columns = [profile.kinds.index(figure) if figure in profile.kinds else None for figure in KINDS[kind]]
    return Weight(
        *(0 if column is None else sum(values[column] for _, values in profile.samples) for column in columns)
    )


def name(profile: Profile, debug: pathlib.Path = DEBUG) -> Named:
    tables: dict[Mapping, Symbols] = {}
    raw = {number: _raw(location, tables, debug) for number, location in profile.locations.items()}
    readable = demangled({frame.name for frames in raw.values() for frame in frames})
    frames = {number: tuple(frame._replace(name=readable.get(frame.name, frame.name)) for frame in frames)
              for number, frames in raw.items()}  # fmt: skip
    notes = sorted({f"{mapping.file} {table.problem}" for mapping, table in tables.items() if table.problem})
    return Named(profile, frames, notes)


def _raw(location: Location, tables: dict[Mapping, Symbols], debug: pathlib.Path) -> tuple[Frame, ...]:
    mapping = location.mapping
    file = mapping.file if mapping else ""
    if location.names:
        return tuple(Frame(given, file) for given in location.names)
    if not mapping:
        return (Frame(f"{location.address:#x}"),)
    if mapping not in tables:
        tables[mapping] = Symbols.of(mapping, debug)
    found = tables[mapping]
    address = found.address_of(location.address - mapping.start + mapping.offset)
    known = found.name(address) if address is not None else ""
    if known:
        return (Frame(known, file),)
    place = f"{location.address:#x}" if address is None else f"{os.path.basename(file)}+{address:#x}"
    return (Frame(place, file),)


def demangled(names: Iterable[str]) -> dict[str, str]:
    """Readable forms of those that have one. Without c++filt (binutils) there is none."""
    wanted = sorted({one for one in names if MANGLED.fullmatch(one)})
    tool = shutil.which("c++filt")
    if not wanted or not tool:
        return {}
    try:
        done = subprocess.run([tool, "-p"], input="\n".join(wanted) + "\n", capture_output=True, text=True,
                              timeout=DEMANGLE_SECONDS, check=False, errors="replace")  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {}
    said = done.stdout.split("\n")[:-1]
    return dict(zip(wanted, said, strict=True)) if len(said) == len(wanted) else {}
