"""Known answers: known.py MADE

The program MADE writes profiles whose content is known; they are decoded here, field by field. Each run first shows that
the decoder refuses a profile that is damaged.
"""

import functools
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases
import message

MADE = sys.argv[1]
MIB, KIB = 1 << 20, 1 << 10


def made(kind, path, program=MADE, *more):
    done = subprocess.run([program, kind, path, *more], check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return message.read(path)


refuses = functools.partial(cases.refuses, (AssertionError, OSError, EOFError, zlib.error))


def controls(folder):
    path = folder / "control"
    made("known", path)
    data = path.read_bytes()
    for at in (*range(10), *range(10, len(data), 13), len(data) - 1):
        refuses(message.read_bytes, data[:at])
        if at < 4 or at >= 10:  # the rest of gzip's head says nothing about the content
            refuses(message.read_bytes, data[:at] + bytes([data[at] ^ 2]) + data[at + 1 :])


def known(folder):
    profile = made("known", folder / "known")
    assert [profile.type_of(kind)[1] for kind in profile.types] == ["count", "bytes"] * 3
    single = profile.single
    assert profile.type_of(single["period_type"]) == ("space", "bytes")
    assert single["period"] == 512 * KIB
    assert profile.text(single["shown"]) == "inuse_space"
    assert single["time"] == 1700000000123456789 and single["duration"] == 60 * 10**9
    comments = [profile.text(n) for n in profile.comments]
    assert comments[0] == "hakmem 1.2.3", comments
    assert "44 bytes" in comments[1] and "11 bytes" in comments[2], comments
    deepest = tuple((1 << 64) - 2 - i for i in range(64))
    assert profile.stacks() == {
        (0x1000, 0x2000, 0x3000): (2, 3000, 1, 2000, 1, 2000),
        (0x1000, 0x7FFFFFFF0000): (10, 600, 10, 600, 10, 500),
        deepest: (1, 7, 1, 7, 1, 7),
        ("[no stack]",): (3, 1 << 40, 0, 0, 3, 1 << 40),
        ("[other stacks]",): (1, 11, 1, 11, 0, 0),
    }, profile.stacks()
    assert len(profile.locations) == 4 + 64 + 2, "an address has one location"


def build_id(path):
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    return re.search(r"Build ID: (\w+)", notes)[1]


def judge_real(profile, file, wanted_id):
    """The program's mapping is the first, libc's is there, and nothing that is no file."""
    files = [profile.text(m["file"]) for m in profile.mappings.values()]
    ids = [profile.text(m["build_id"]) if "build_id" in m else "" for m in profile.mappings.values()]
    assert list(profile.mappings) == list(range(1, len(files) + 1))
    assert files[0] == str(file), files
    assert ids[0] == wanted_id, ids
    libc = next(i for i, name in enumerate(files) if re.search(r"/libc[.-]", name))
    assert ids[libc] == build_id(files[libc]), ids
    for name, found in zip(files, ids, strict=True):
        assert found == "" or not Path(name).exists() or found == build_id(name), (name, found)
    assert sum(name == str(file) for name in files) == 2 and "" in ids, "a page without the file's first is in no build"
    assert all(name.startswith("/") or name == "[vdso]" for name in files), files
    sums = [sum(figures) for figures in zip(*profile.stacks().values(), strict=True)]
    live, most = 1000 * KIB + 3 * MIB, 1000 * KIB + 12 * MIB
    assert sums == [1012, most, 1003, live, 1012, most], sums
    inside = profile.mappings[1]
    for stack in profile.stacks():
        assert all(inside["start"] <= address < inside["limit"] for address in stack[:3]), stack


def real(folder):
    profile = made("real", folder / "real")
    judge_real(profile, MADE, build_id(MADE))
    refuses(judge_real, profile, MADE, "0" * 40)
    refuses(judge_real, profile, MADE + "x", build_id(MADE))
    refuses(judge_real, made("known", folder / "real"), MADE, build_id(MADE))
    names = [
        "two  blanks and a tab\t",
        "its name ends so (deleted)x",
        "ünïcødé",
        b"not \xff\xc3 utf-8".decode(errors="surrogateescape"),
    ]
    for name in names:
        place = folder / name
        place.mkdir()
        copy = place / "made"
        shutil.copy(MADE, copy)
        wanted = re.sub("[\udc80-\udcff]", "?", str(copy))
        judge_real(made("real", folder / "real", copy), wanted, build_id(copy))
        judge_real(made("real", folder / "real", copy, "--deleted"), wanted, build_id(MADE))


cases.run(controls, known, real)
