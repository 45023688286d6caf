"""Policy files, read as observe/adapt/policy_file.h describes them, by nothing of the library's."""

import struct
from dataclasses import dataclass, field

MARK = b"hakpol\r\n"
HEAD, MODULE, RECORD = struct.Struct("<8s8I8I6I32s"), struct.Struct("<I28s"), struct.Struct("<Q6QQ6iIIBBBB")
CHECKSUM = struct.Struct("<Q")
VERSION_AT, STRATEGIES_AT = 8, 12
SITE, PRIOR, REST = range(3)
TAG_SHIFT = 40


def crc64(data: bytes) -> int:
    """CRC-64/XZ."""
    crc = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xC96C5795D7870F42 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFFFFFFFFFF


@dataclass
class Content:
    ratings: dict[tuple[int, int, int], tuple[int, ...]] = field(default_factory=dict)  # by kind, site, range
    modules: dict[int, str] = field(default_factory=dict)

    def sites(self) -> set[int]:
        return {site for kind, site, _ in self.ratings if kind == SITE}


def read(data: bytes) -> Content:
    """What is in a file; ValueError if it is not whole."""
    if len(data) < HEAD.size + CHECKSUM.size or crc64(data[:-8]) != CHECKSUM.unpack(data[-8:])[0]:
        raise ValueError("not whole")
    mark, version, strategies, ranges, _, _, modules, records, *_ = HEAD.unpack_from(data)
    if (mark, version, strategies, ranges) != (MARK, 1, 6, 32):
        raise ValueError("another format")
    records_at = HEAD.size + modules * MODULE.size
    if len(data) != records_at + records * RECORD.size + CHECKSUM.size:
        raise ValueError("another length")
    content = Content()
    for i in range(modules):
        tag, name = MODULE.unpack_from(data, HEAD.size + i * MODULE.size)
        content.modules[tag] = name.rstrip(b"\0").decode()
    for i in range(records):
        values = RECORD.unpack_from(data, records_at + i * RECORD.size)
        site, ratings, kind, place = values[0], values[8:14], values[16], values[17]
        content.ratings[kind, site, place] = ratings
    return content


def changed(data: bytes, at: int, value: int) -> bytes:
    """With another number in a place, and the checksum that belongs to it."""
    body = data[:at] + struct.pack("<I", value) + data[at + 4 : -8]
    return body + CHECKSUM.pack(crc64(body))
