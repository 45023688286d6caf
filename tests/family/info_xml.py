"""malloc_info's XML is well formed, and its sums agree with its parts and with mallinfo2.

    info_xml.py PROGRAM LIBRARY     PROGRAM prints the XML on stdout and mallinfo2's numbers as JSON on stderr;
                                    LIBRARY is preloaded

The root is <malloc>. <total type="live">, "free" and "mmap" and <system type="current"> carry sizes in bytes:
live + free = current; mmap is part of live.
"""
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases


def one(root, tag, kind):
    found = [element for element in root if element.tag == tag and element.get("type") == kind]
    assert len(found) == 1, f"{len(found)} elements {tag} of type {kind}"
    return found[0]


def near(a, b):
    """Equal, but for what printing itself allocates."""
    assert abs(a - b) <= 65536, (a, b)


def check(xml, info):
    root = ElementTree.fromstring(xml)
    assert root.tag == "malloc", root.tag
    live, free, mmapped = (int(one(root, "total", kind).get("size")) for kind in ("live", "free", "mmap"))
    current, most = (int(one(root, "system", kind).get("size")) for kind in ("current", "max"))
    near(live + free, current)
    assert current <= most
    assert mmapped <= live
    assert mmapped >= 3 * (5 << 20)
    near(live, info["live"] + info["large"])  # mallinfo2 counts large blocks apart, as glibc
    near(mmapped, info["large"])
    numbers = {element.get("name"): int(element.get("value")) for element in root.iter("hakmem")}
    near(numbers["live_bytes"], live)
    near(free + numbers["extent_free_bytes"], info["free"])  # mallinfo2's arena has the free extents in it
    assert int(one(root, "total", "mmap").get("count")) == info["large_count"]


own = cases.environment(LD_PRELOAD=sys.argv[2], TEST_EXPECT_HAKMEM="1")
result = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True, env=own)
info = json.loads(result.stderr)
check(result.stdout, info)
# Positive control: the same text with one size changed, and cut short, is refused.
for broken in (result.stdout.replace('type="live" size="', 'type="live" size="7', 1), result.stdout[:-5]):
    cases.refuses((AssertionError, ElementTree.ParseError), check, broken, info)
