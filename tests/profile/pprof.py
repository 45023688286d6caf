"""The real pprof opens the profiles: pprof.py MADE CACHE

It finds the functions by itself, in the program that the first mapping names. Each run first shows that it refuses a
profile that is cut off. CACHE: a folder for Go, whose later versions have no pprof: it is built there.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import go_pprof

MADE, CACHE = sys.argv[1], Path(sys.argv[2])
try:
    PPROF = go_pprof.find(CACHE)
except go_pprof.NoGo as error:
    print(f"skipped: {error}")
    sys.exit(77)


def pprof(*words, fails=False):
    done = subprocess.run(
        [*PPROF, *words], capture_output=True, text=True, check=False, env=go_pprof.environment(CACHE), timeout=250
    )
    assert (done.returncode != 0) == fails, f"status {done.returncode}: {done.stderr}"
    return done.stdout


def top(kind, path):
    """{function: (flat, cumulative)}, in the units that are asked for, as text."""
    unit = "B" if kind.endswith("space") else "count"
    said = pprof("-top", f"-sample_index={kind}", f"-unit={unit}", "-nodecount=100", "-nodefraction=0", str(path))
    rows = re.findall(r"^ *(\d+)\w* +\S+% +\S+% +(\d+)\w* +\S+% +(.*)$", said, re.MULTILINE)
    return {name.removesuffix(" (inline)"): (int(flat), int(cumulative)) for flat, cumulative, name in rows}


def real(path):
    kib, mib = 1 << 10, 1 << 20
    live, most = 1000 * kib + 3 * mib, 1000 * kib + 12 * mib
    for kind, reads, parses, works in (
        ("inuse_space", 1000 * kib, 3 * mib, live),
        ("alloc_space", 1000 * kib, 12 * mib, most),
        ("peak_space", 1000 * kib, 12 * mib, most),
        ("inuse_objects", 1000, 3, 1003),
        ("alloc_objects", 1000, 12, 1012),
        ("peak_objects", 1000, 12, 1012),
    ):
        found = top(kind, path)
        wanted = {"reads": (reads, reads), "parses": (parses, parses), "works": (0, works)}
        assert {name: found.get(name) for name in wanted} == wanted, (kind, found)
    shown = pprof("-top", str(path))
    assert "Type: inuse_space" in shown and "parses" in shown, shown
    assert "hakmem 1.2.3" in pprof("-comments", str(path))
    raw = pprof("-raw", str(path))
    assert "PeriodType: space bytes" in raw and "Period: 524288" in raw, raw
    assert re.search(rf"^1: 0x\w+/0x\w+/0x\w+ {re.escape(MADE)} \w{{40}} \[FN\]", raw, re.MULTILINE), raw
    assert f"{Path(__file__).parent / 'made.c'}" in raw, "the lines are found, too"


def known(path):
    """Names that are in the profile itself."""
    found = top("alloc_space", path)
    assert found["[other stacks]"] == (11, 11) and found["[no stack]"] == (1 << 40, 1 << 40), found


with tempfile.TemporaryDirectory() as name:
    for kind, judge in (("real", real), ("known", known)):
        path, cut = Path(name) / kind, Path(name) / "cut"
        subprocess.run([MADE, kind, path], check=True, timeout=200)
        cut.write_bytes(path.read_bytes()[:-1])
        pprof("-raw", str(cut), fails=True)
        judge(path)
