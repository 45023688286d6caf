"""Heap profiles for tests, and the verb that reads them."""

import gzip
import subprocess

import forked
import pytest

from lab.judge.stacks import Frame, Stack, Weight
from lab.store import profile as stored

HOSTILE = (
    '<script>alert("x")</script>', "a\"b'c&d|e`f$g$", "</title></svg><img src=x onerror=alert(1)>", "two\nlines\r\x1b[31mred",
    "ns::t<" + "std::pair<int, x>, " * 600 + "int>::f", "\x00\ufffe\u202egnp.", "{{ 7 * 7 }}",
)  # fmt: skip
FIGURES = {"alloc_objects": "count", "alloc_space": "bytes", "inuse_objects": "count", "inuse_space": "bytes",
           "peak_objects": "count", "peak_space": "bytes"}  # fmt: skip


def content(rows, figures=FIGURES):
    """The message of a profile: rows of (names, the outermost first; figures, or one number for all of them)."""
    message = stored.message_class()()
    strings = message.string_table
    strings.append("")

    def text(value):
        strings.append(value)
        return len(strings) - 1

    for name, unit in figures.items():
        message.sample_type.add(type=text(name), unit=text(unit))
    message.mapping.add(id=1, memory_start=0x1000, memory_limit=0x9000, filename=text("/nowhere/<made> & up"))
    known = {}
    for names, values in rows:
        for name in names:
            if name not in known:
                number = known[name] = len(known) + 1
                message.function.add(id=number, name=text(name), system_name=text(name))
                message.location.add(id=number, mapping_id=1, address=0x1000 + number).line.add(function_id=number)
        values = [values] * len(figures) if isinstance(values, int) else values
        message.sample.add(location_id=[known[name] for name in reversed(names)], value=values)
    message.period = 1 << 19
    return message


def packed(message):
    return gzip.compress(message.SerializeToString())


def stacks(rows):
    return [Stack(tuple(Frame(name) for name in names), Weight(size, size)) for names, size in rows]


@pytest.fixture
def hostile(tmp_path):
    """A profile in which every name is one of HOSTILE."""
    path = tmp_path / "<hostile>.pb.gz"
    path.write_bytes(packed(content([((name, HOSTILE[0]), 1000 + place) for place, name in enumerate(HOSTILE)])))
    return path


@pytest.fixture(scope="session")
def made(build, tmp_path_factory):
    """Profiles by the test program of tests/profile: `real`, whose functions and figures are known, and `known`."""
    folder = tmp_path_factory.mktemp("profiles")
    program = build / "bin" / "tests" / "test-profile-made"
    for kind in ("real", "known"):
        subprocess.run([program, kind, folder / kind], check=True, timeout=50)
    return folder


@pytest.fixture
def verb(build, library, tmp_path):
    """verb(WORD...) is hak profile WORD..., in tmp_path."""
    environment = {"HAK_BUILD": str(build), "HAK_LIB": str(library)}

    def run(*words, variables=None, status=0):
        done = forked.hak("profile", *words, cwd=tmp_path, variables=environment | (variables or {}))
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return done

    return run
