"""Heap profiles: gzip of the message Profile of google/pprof's profile.proto, as hakmem and others write it.

    profile = read(path)            BadProfile, OSError
    profile.kinds                   the names of the figures that each sample has
    profile.samples                 (locations, the innermost first; figures)

Nothing in a file is trusted: its size is limited, its numbers are checked, its names may be anything.
"""

import functools
import gzip
import pathlib
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

LIMIT_BYTES = 1 << 30  # of the content, unpacked
GZIP = b"\x1f\x8b"

# The messages: field -> number and type, a message's name among them; "*": several.
MESSAGES = {
    "ValueType": {"type": (1, "int64"), "unit": (2, "int64")},
    "Sample": {"location_id": (1, "uint64*"), "value": (2, "int64*")},
    "Mapping": {
        "id": (1, "uint64"), "memory_start": (2, "uint64"), "memory_limit": (3, "uint64"), "file_offset": (4, "uint64"),
        "filename": (5, "int64"), "build_id": (6, "int64"),
    },
    "Line": {"function_id": (1, "uint64"), "line": (2, "int64")},
    "Location": {"id": (1, "uint64"), "mapping_id": (2, "uint64"), "address": (3, "uint64"), "line": (4, "Line*")},
    "Function": {"id": (1, "uint64"), "name": (2, "int64"), "system_name": (3, "int64"), "filename": (4, "int64")},
    "Profile": {
        "sample_type": (1, "ValueType*"), "sample": (2, "Sample*"), "mapping": (3, "Mapping*"),
        "location": (4, "Location*"), "function": (5, "Function*"), "string_table": (6, "string*"),
        "time_nanos": (9, "int64"), "duration_nanos": (10, "int64"), "period_type": (11, "ValueType"),
        "period": (12, "int64"), "comment": (13, "int64*"), "default_sample_type": (14, "int64"),
    },
}  # fmt: skip


class BadProfile(ValueError):
    """What is wrong with a file, in one sentence."""


class Mapping(NamedTuple):
    start: int
    limit: int
    offset: int
    file: str
    build_id: str  # hexadecimal; "": unknown


class Location(NamedTuple):
    address: int
    mapping: Mapping | None
    names: tuple[str, ...]  # that the profile itself gives, the outermost first; what is inlined comes after its caller


@dataclass(frozen=True)
class Profile:
    kinds: list[str]
    units: list[str]
    samples: list[tuple[tuple[int, ...], tuple[int, ...]]]
    locations: dict[int, Location]
    comments: list[str] = field(default_factory=list)
    period_bytes: int = 0
    time_ns: int = 0
    duration_ns: int = 0
    program: str = ""  # last component of its file's name


@functools.cache
def message_class():
    """Of the message Profile, made from the table above."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools.profiles", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            one = message.field.add(name=field_name, number=number)
            one.label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            if kind in MESSAGES:
                one.type, one.type_name = kinds.TYPE_MESSAGE, f".perftools.profiles.{kind}"
            else:
                one.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.profiles.Profile"))


def read(path: pathlib.Path) -> Profile:
    """Raises BadProfile, which names the file, or OSError."""
    if not path.is_file():
        path.stat()  # OSError if there is nothing
        raise BadProfile(f"{path} is not a file")
    try:
        return parse(_unpacked(path))
    except BadProfile as error:
        raise BadProfile(f"{path} {error}") from None


def _unpacked(path: pathlib.Path) -> bytes:
    try:
        with path.open("rb") as file:
            is_packed = file.read(len(GZIP)) == GZIP
            file.seek(0)
            found = gzip.GzipFile(fileobj=file).read(LIMIT_BYTES + 1) if is_packed else file.read(LIMIT_BYTES + 1)
    except EOFError:
        raise BadProfile("is cut off") from None
    except (gzip.BadGzipFile, zlib.error):
        raise BadProfile("is damaged") from None
    if not found:
        raise BadProfile("is empty")
    if len(found) > LIMIT_BYTES:
        raise BadProfile(f"holds more than {LIMIT_BYTES >> 20} MiB")
    return found


def parse(data: bytes) -> Profile:
    """Raises BadProfile: the end of a sentence about the file."""
    from google.protobuf.message import DecodeError

    try:
        message = message_class().FromString(data)
    except (DecodeError, UnicodeDecodeError):
        raise BadProfile("is not a profile, or damaged") from None
    if not message.sample_type or not message.string_table or message.string_table[0]:
        raise BadProfile("is not a profile, or damaged")
    try:
        return _checked(message)
    except (KeyError, IndexError):
        raise BadProfile("is damaged: it names what is not in it") from None


def _checked(message) -> Profile:
    strings = message.string_table

    def text(number: int) -> str:
        if number < 0:
            raise IndexError
        return strings[number]

    mappings = {one.id: Mapping(one.memory_start, one.memory_limit, one.file_offset, text(one.filename), text(one.build_id))
                for one in message.mapping}  # fmt: skip
    functions = {one.id: text(one.name) or text(one.system_name) for one in message.function}
    locations = {
        one.id: Location(one.address, mappings[one.mapping_id] if one.mapping_id else None,
                         tuple(functions[line.function_id] for line in reversed(one.line) if line.function_id))
        for one in message.location
    }  # fmt: skip
    count = len(message.sample_type)
    samples = [(tuple(one.location_id), tuple(one.value)) for one in message.sample]
    for ids, values in samples:
        if len(values) != count or not all(number in locations for number in ids):
            raise KeyError
    return Profile(
        [text(one.type) for one in message.sample_type], [text(one.unit) for one in message.sample_type], samples,
        locations, [text(number) for number in message.comment], message.period, message.time_nanos,
        message.duration_nanos, text(message.mapping[0].filename).rpartition("/")[2] if message.mapping else "",
    )  # fmt: skip
