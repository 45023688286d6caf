"""Reads a profile, as gzip of profile.proto's message Profile, without a library that could forgive a mistake."""

import gzip
from dataclasses import dataclass, field
from pathlib import Path

FIGURES = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "peak_objects", "peak_space")


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            assert shift == 7 or byte, "a number is longer than it has to be"
            assert value < 1 << 64
            return value, at


def fields(data):
    """(field, number or bytes), in their order."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        if tag & 7 == 2:
            assert at + value <= len(data), "a field is cut"
            value, at = data[at : at + value], at + value
        else:
            assert tag & 7 == 0, f"wire type {tag & 7}"
        yield tag >> 3, value


def message(data, names):
    """A message of which each field stands once."""
    found = {}
    for number, value in fields(data):
        assert number in names and names[number] not in found, f"field {number}"
        found[names[number]] = value
    return found


def numbers(data):
    found, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(value)
    return found


@dataclass
class Profile:
    strings: list = field(default_factory=list)
    types: list = field(default_factory=list)
    samples: list = field(default_factory=list)
    mappings: dict = field(default_factory=dict)
    locations: dict = field(default_factory=dict)
    functions: dict = field(default_factory=dict)
    comments: list = field(default_factory=list)
    single: dict = field(default_factory=dict)

    def text(self, number):
        return self.strings[number]

    def type_of(self, message):
        return self.text(message["name"]), self.text(message["unit"])

    def name(self, location):
        """What the profile itself calls it; an address has no name."""
        line = self.locations[location].get("line")
        return self.text(self.functions[message(line, {1: "function"})["function"]]["name"]) if line else None

    def stacks(self):
        """{(address or name, ...): (figure, ...)}"""
        found = {}
        for sample in self.samples:
            key = tuple(self.name(n) or self.locations[n]["address"] for n in sample["locations"])
            assert key not in found, "a stack stands twice"
            found[key] = tuple(sample["figures"])
        return found


def take(profile, number, value):
    type_names = {1: "name", 2: "unit"}
    if number == 1:
        profile.types.append(message(value, type_names))
    elif number == 2:
        parts = message(value, {1: "locations", 2: "figures"})
        profile.samples.append({name: numbers(part) for name, part in parts.items()})
    elif number == 6:
        profile.strings.append(value.decode())
    elif number == 13:
        profile.comments.append(value)
    elif number in (3, 4, 5):
        table, names = {
            3: (profile.mappings, {1: "id", 2: "start", 3: "limit", 4: "offset", 5: "file", 6: "build_id"}),
            4: (profile.locations, {1: "id", 2: "mapping", 3: "address", 4: "line"}),
            5: (profile.functions, {1: "id", 2: "name", 3: "system_name"}),
        }[number]
        entry = message(value, names)
        assert entry["id"] not in table, "a number stands twice"
        table[entry["id"]] = entry
    else:
        names = {9: "time", 10: "duration", 11: "period_type", 12: "period", 14: "shown"}
        assert number in names and names[number] not in profile.single, f"field {number}"
        profile.single[names[number]] = message(value, type_names) if number == 11 else value


def check(profile):
    """What every profile has to keep to."""
    assert profile.strings[:1] == [""] and len(set(profile.strings)) >= len(FIGURES)
    assert [profile.text(kind["name"]) for kind in profile.types] == list(FIGURES)
    for sample in profile.samples:
        assert len(sample["figures"]) == len(FIGURES)
        assert sample["locations"] and all(n in profile.locations for n in sample["locations"])
    for location in profile.locations.values():
        if "mapping" in location:
            mapping = profile.mappings[location["mapping"]]
            assert mapping["start"] <= location["address"] < mapping["limit"]
        else:
            around = [m for m in profile.mappings.values() if m["start"] <= location.get("address", 0) < m["limit"]]
            assert not around, f"{location} lies in {around}"


def read_bytes(data):
    profile = Profile()
    for number, value in fields(gzip.decompress(data)):
        take(profile, number, value)
    check(profile)
    return profile


def read(path):
    return read_bytes(Path(path).read_bytes())
