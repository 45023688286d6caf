"""Functions of ELF files by address, from their symbol tables.

    found = Symbols.of(mapping)     of a profile's mapping; found.problem says why it has no names
    found.name(address)             "" if no function is known there

The file is the one that the mapping names, if it has the mapping's build-id; names come from it, or from the file of its
build-id in /usr/lib/debug, which has more of them. Files are not trusted to be what they should be.
"""

import pathlib
from dataclasses import dataclass

from lab.store.profile import Mapping

DEBUG = pathlib.Path("/usr/lib/debug/.build-id")
EXECUTABLE = 1  # PF_X
PAGE = 4096
FUNCTION_TYPES = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
LOCAL = 0  # STB_LOCAL


@dataclass(frozen=True)
class Segment:
    """What is executable: where it is in the file, and at which address the symbols have it."""

    offset: int
    length: int
    address: int


@dataclass
class Symbols:
    segments: list[Segment]
    starts: object = None  # numpy arrays, by start
    ends: object = None
    names: object = None  # where in `strings`
    strings: bytes = b""
    problem: str = ""  # the end of a sentence about the file

    @staticmethod
    def of(mapping: Mapping, debug: pathlib.Path = DEBUG) -> "Symbols":
        found = _of_file(pathlib.Path(mapping.file), mapping.build_id)
        ident = mapping.build_id
        if ident.isalnum() and len(ident) > 2:
            more = _of_file(debug / ident[:2] / f"{ident[2:]}.debug", ident)
            # Its offsets are not those of the file that is mapped.
            if len(more):
                start = more.segments[0].address // PAGE * PAGE if more.segments else 0
                own = found.segments or [Segment(mapping.offset, mapping.limit - mapping.start, start)]
                return Symbols(own, more.starts, more.ends, more.names, more.strings)
        return found

    def __len__(self) -> int:
        return 0 if self.starts is None else len(self.starts)

    def address_of(self, offset: int) -> int | None:
        """The address, as symbols have it, of what is at this offset of the file that is mapped."""
        for segment in self.segments:
            # A mapping has whole pages: it begins before its segment.
            if segment.offset // PAGE * PAGE <= offset < segment.offset + segment.length:
                return offset - segment.offset + segment.address
        return None

    def name(self, address: int) -> str:
        import numpy

        if not len(self):
            return ""
        at = int(numpy.searchsorted(self.starts, address, side="right")) - 1
        if at < 0 or address >= self.ends[at]:
            return ""
        start = int(self.names[at])
        end = self.strings.find(b"\0", start)
        found = self.strings[start : end if end >= 0 else None].decode(errors="replace")
        return found.partition("@")[0]  # without the version, which is for the linker


def _of_file(path: pathlib.Path, build_id: str) -> Symbols:
    from elftools.elf.elffile import ELFFile

    try:
        if not path.is_file():
            return Symbols([], problem="is not there")
        with path.open("rb") as file:
            elf = ELFFile(file)
            if build_id and _build_id(elf) != build_id:
                return Symbols([], problem="is not the file that was profiled: it has another build-id")
            return _read(elf)
    except OSError as error:
        return Symbols([], problem=f"cannot be read: {error.strerror}")
    except Exception:  # noqa: BLE001 - the parser meets bytes that anybody wrote, and raises whatever comes of them
        return Symbols([], problem="is no ELF file, or a damaged one")


def _build_id(elf) -> str:
    for segment in elf.iter_segments("PT_NOTE"):
        for note in segment.iter_notes():
            if note["n_type"] == "NT_GNU_BUILD_ID":
                return note["n_desc"]
    return ""


def _read(elf) -> Symbols:
    segments = [Segment(one["p_offset"], one["p_filesz"], one["p_vaddr"]) for one in elf.iter_segments("PT_LOAD")
                if one["p_flags"] & EXECUTABLE]  # fmt: skip
    found = Symbols(segments, problem="has no symbols")
    for kind in ("SHT_SYMTAB", "SHT_DYNSYM"):
        for section in elf.iter_sections(kind):
            _take(found, elf, section)
            if len(found):
                found.problem = ""
                return found
    return found


def _take(found: Symbols, elf, section) -> None:
    """The functions of a symbol table. Of those at one address the global one counts, else the first by name."""
    import numpy

    order = "<" if elf.little_endian else ">"
    wide = [("name", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2"), ("value", "u8"), ("size", "u8")]
    narrow = [("name", "u4"), ("value", "u4"), ("size", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2")]
    form = numpy.dtype([(name, order + kind) for name, kind in (wide if elf.elfclass == 64 else narrow)])
    data = section.data()
    rows = numpy.frombuffer(data, form, count=len(data) // form.itemsize)
    rows = rows[numpy.isin(rows["info"] & 15, FUNCTION_TYPES) & (rows["section"] != 0) & (rows["size"] != 0)]
    rows = rows[numpy.lexsort((rows["name"], rows["info"] >> 4 == LOCAL, rows["value"]))]
    rows = rows[numpy.unique(rows["value"], return_index=True)[1]]
    found.starts = rows["value"].astype("u8")
    found.ends = found.starts + rows["size"].astype("u8")
    found.names = rows["name"]
    found.strings = elf.get_section(section["sh_link"]).data()
