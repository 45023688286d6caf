"""Allocation traces: what `hak record` wrote. docs/traces.md describes the file; libhaktrace.so reads it.

    with Trace(path, library) as trace:
        trace.facts              Facts: what the file says of itself, and what is wrong with it
        for batch in trace:      numpy arrays of event_type(), in the program's order; memory stays bounded
        trace.events()           all of them in one array, 40 bytes an event
        trace.sites()            the call sites, once the events were read: row `site` of an event is sites()[site]

An event: size (of the block; of a free: of the one freed), delta (change of the live bytes), time_us (since the start),
object (blocks are numbered as they are made; a realloc keeps the number), thread (numbered by first event), site (a row,
or NO_SITE; known from 64 KiB on), kind, alignment_log2, flags. lab.judge.allocations names kinds and flags.

The file is not trusted: the library checks all of it first. What stands before a damage is read as if it were all.
"""

import ctypes
import functools
import os
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

BATCH = 1 << 16
END_EXIT, END_EXEC, END_SIGNAL, END_LIMIT, END_WRITE = range(1, 6)
SENTENCE_BYTES, NAME_BYTES, BUILD_ID_BYTES = 256, 88, 32


class BadTrace(ValueError):
    """Nothing of the file can be used: a sentence that names it."""


@functools.cache
def event_type():
    """The layout of struct trace_event."""
    import numpy

    fields = [("size", "u8"), ("delta", "i8"), ("time_us", "u8"), ("object", "u4"), ("thread", "u4"), ("site", "u4"),
              ("kind", "u1"), ("alignment_log2", "u1"), ("flags", "u2")]  # fmt: skip
    return numpy.dtype(fields)


class _Module(ctypes.Structure):
    _fields_ = [
        ("build_id_bytes", ctypes.c_uint32),
        ("build_id", ctypes.c_uint8 * BUILD_ID_BYTES),
        ("name", ctypes.c_char * NAME_BYTES),
    ]


class _Site(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("module", ctypes.c_uint32), ("padding", ctypes.c_uint32)]


class Facts(ctypes.Structure):
    """struct trace_facts, whose members bench/trace/trace.h explains."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in (
            "file_bytes", "good_bytes", "raw_events", "unknown_frees", "lost", "unix_s", "duration_us", "end_detail")),
        *((name, ctypes.c_uint32) for name in ("end_reason", "images", "modules", "sites", "pid")),
        ("_program", ctypes.c_char * NAME_BYTES),
        ("_damage", ctypes.c_char * SENTENCE_BYTES),
    ]  # fmt: skip

    @property
    def program(self) -> str:
        return self._program.decode(errors="replace")

    @property
    def damage(self) -> str:
        """The end of a sentence about the file; "" if all of it is good."""
        return self._damage.decode(errors="replace")

    @property
    def problem(self) -> str:
        """The end of a sentence about the file, if it does not hold all that the program did; else ""."""
        if self.damage:
            return f"{self.damage}; the {self.good_bytes:,} bytes before that are used"
        if self.end_reason == END_LIMIT:
            return f"ends early: it reached its limit of {self.end_detail / 2**20:.0f} MB"
        if self.end_reason == END_WRITE:
            return f"ends early: it could not be written ({os.strerror(self.end_detail)})"
        if self.end_reason == END_EXEC:
            return "ends at an exec: the program that followed could not be recorded"
        if self.end_reason == 0:
            return (
                f"has no end mark at byte {self.file_bytes}: the program was killed or still runs, or a part is missing"
            )
        if self.lost:
            return f"lacks {self.lost:,} calls, made in signal handlers inside the recorder or while its file was stuck"
        return ""


@dataclass(frozen=True)
class Site:
    """A call site: the return address, less the load address of its module."""

    module: str  # last component of the file's name; "" if unknown, then offset is the address
    build_id: str  # hexadecimal; "" if it has none
    offset: int

    def __str__(self) -> str:
        return f"{self.module or '?'}+0x{self.offset:x}"


@functools.cache
def _loaded(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, *arguments in (
        ("trace_open", pointer, text, text),
        ("trace_close", None, pointer),
        ("trace_facts_of", None, pointer, pointer),
        ("trace_read", ctypes.c_size_t, pointer, pointer, ctypes.c_size_t),
        ("trace_rewind", ctypes.c_bool, pointer),
        ("trace_is_short_of_memory", ctypes.c_bool, pointer),
        ("trace_module_of", ctypes.POINTER(_Module), pointer, ctypes.c_uint32),
        ("trace_sites", ctypes.POINTER(_Site), pointer),
        ("trace_plan", ctypes.c_bool, pointer, text, text),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def library_in(build_dir: str | os.PathLike) -> pathlib.Path:
    return pathlib.Path(build_dir, "lib", "libhaktrace.so")


class Trace:
    def __init__(self, path: str | os.PathLike, library: str | os.PathLike):
        """`library`: libhaktrace.so. Raises BadTrace; OSError if the library is not there."""
        self.path = pathlib.Path(path)
        self._library = _loaded(os.fspath(library))
        problem = ctypes.create_string_buffer(SENTENCE_BYTES)
        self._trace = self._library.trace_open(os.fsencode(path), problem)
        if not self._trace:
            raise BadTrace(f"{path} {problem.value.decode(errors='replace')}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        if self._trace:
            self._library.trace_close(self._trace)
        self._trace = None

    @property
    def facts(self) -> Facts:
        found = Facts()
        self._library.trace_facts_of(self._trace, ctypes.byref(found))
        return found

    def batches(self, room: int = BATCH) -> Iterator:
        """From the first event on. An array holds until the next one is asked for. Raises MemoryError."""
        import numpy

        events = numpy.empty(room, event_type())
        if not self._library.trace_rewind(self._trace):
            raise MemoryError
        while count := self._library.trace_read(self._trace, events.ctypes.data, room):
            yield events[:count]
        if self._library.trace_is_short_of_memory(self._trace):
            raise MemoryError

    __iter__ = batches

    def events(self):
        import numpy

        parts = [batch.copy() for batch in self]
        return numpy.concatenate(parts) if parts else numpy.empty(0, event_type())

    def sites(self) -> list[Site]:
        """Of the events that were read."""
        rows = self._library.trace_sites(self._trace)
        return [self._site(rows[row]) for row in range(self.facts.sites)]

    def _site(self, row: _Site) -> Site:
        module = self._library.trace_module_of(self._trace, row.module)
        if not module:
            return Site("", "", row.offset)
        found = module.contents
        return Site(
            found.name.decode(errors="replace"), bytes(found.build_id[: found.build_id_bytes]).hex(), row.offset
        )

    def write_plan(self, path: str | os.PathLike) -> None:
        """What bin/replay works by (bench/trace/plan.h). Raises ValueError: why not."""
        problem = ctypes.create_string_buffer(SENTENCE_BYTES)
        if not self._library.trace_plan(self._trace, os.fsencode(path), problem):
            raise ValueError(f"{self.path}: {problem.value.decode(errors='replace')}")
