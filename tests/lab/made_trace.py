"""Makes trace files from docs/traces.md alone: the reader is held against what a person would write by it."""

import random
import struct
import zlib
from dataclasses import dataclass

START, MODULE, EVENTS, END = range(1, 5)
MALLOC, CALLOC, ALIGNED, FREE, TOOK, GAVE, KEPT, FREED, THREAD, TIME = range(10)
NEXT, ODD = 0x10, 0x20
LARGE = 64 << 10


def chunk(kind, payload, lane=0, items=0, order=0, time_us=0, version=1):
    rest = struct.pack("<HHIIIQQ", kind, lane, len(payload), items, version, order, time_us) + payload
    return b"hak\x1a" + struct.pack("<I", zlib.crc32(rest)) + rest


def start(program=b"made", run=7, time_us=0):
    return chunk(START, struct.pack("<QQII88s", run, 1_700_000_000, 42, 4096, program), time_us=time_us)


def module(number, name=b"libmade.so", build_id=b"\xab\xcd"):
    return chunk(MODULE, struct.pack("<I32s88s", len(build_id), build_id, name), items=number)


def end(events, reason=1, detail=0, lost=0, time_us=0):
    return chunk(END, struct.pack("<QQQ", events, lost, detail), items=reason, time_us=time_us)


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def folded(value):
    return varint(2 * value if value >= 0 else -2 * value - 1)


@dataclass
class Event:
    kind: int
    order: int
    thread: int = 1
    address: int = 0
    size: int = 0
    alignment_log2: int = 0
    module: int = 0
    offset: int = 0
    time_us: int = 0


def events(found, lane=0):
    """A chunk of these events, whose order numbers rise."""
    payload, thread, time_us, address, order = b"", 0, found[0].time_us, 0, found[0].order - 1
    for event in found:
        if event.thread != thread:
            thread = event.thread
            payload += bytes([THREAD]) + varint(thread)
        if event.time_us > time_us:
            payload += bytes([TIME]) + varint(event.time_us - time_us)
            time_us = event.time_us
        step, order = event.order - order, event.order
        head = event.kind | (NEXT if step == 1 else 0) | (ODD if event.address % 8 else 0)
        payload += bytes([head]) + (b"" if step == 1 else varint(step))
        if event.kind in (KEPT, FREED):
            continue
        payload += folded(event.address - address if event.address % 8 else event.address // 8 - address // 8)
        address = event.address
        if event.kind in (FREE, TOOK):
            continue
        payload += varint(event.size)
        if event.kind == ALIGNED:
            payload += bytes([event.alignment_log2])
        if event.size >= LARGE:
            payload += varint(event.module) + varint(event.offset)
    return chunk(EVENTS, payload, lane, len(found), found[0].order, found[0].time_us)


def trace(*parts, time_us=0):
    """A whole one: `parts` are lists of events, one a lane and chunk, or made chunks."""
    count = sum(len(part) for part in parts if isinstance(part, list))
    made = [events(part, lane) if isinstance(part, list) else part for lane, part in enumerate(parts)]
    return start(time_us=time_us) + b"".join(made) + end(count, time_us=time_us)


def chunks(data):
    """(offset, kind, events) of each chunk."""
    at, found = 0, []
    while at < len(data):
        kind, _, length, items = struct.unpack_from("<HHII", data, at + 8)
        found.append((at, kind, items if kind == EVENTS else 0))
        at += 40 + length
    return found


def crossing(count, threads, seed=1, largest=4000):
    """Threads that make blocks, resize them and free each other's: a trace."""
    draw, order, live, lanes = random.Random(seed), 0, [], [[] for _ in range(8)]
    for number in range(count):
        thread = 1 + draw.randrange(min(threads, 1 + number * threads // count * 2 + 1))
        order += 1
        lane = lanes[thread % 8]
        if live and draw.random() < 0.42:
            address = live.pop(draw.randrange(len(live)))
            lane.append(Event(FREE, order, thread, address))
        elif live and draw.random() < 0.1:
            address = live[draw.randrange(len(live))]
            lane += [
                Event(TOOK, order, thread, address),
                Event(GAVE, order + 1, thread, address, draw.randrange(largest)),
            ]
            order += 1
        else:
            address = (1 + number) << 32
            kind = CALLOC if number % 9 == 0 else MALLOC
            lane.append(Event(kind, order, thread, address, draw.randrange(largest)))
            live.append(address)
    parts = [lane[at : at + 1000] for lane in lanes for at in range(0, len(lane), 1000)]
    chunked = b"".join(events(part, part[0].thread % 8) for part in parts)
    return start() + chunked + end(sum(map(len, parts)))
