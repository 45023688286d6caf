"""malloc_info's XML is well formed, and its sums agree with its parts and with mallinfo2.

    info_xml.py PROGRAM [LIBRARY]   PROGRAM prints the XML on stdout and mallinfo2's numbers as JSON on stderr;
                                    LIBRARY is preloaded

The root is <malloc>; an element with a "size" and a "count" that stands for a whole (<total ...>) must equal
the sum of its siblings' where those exist, per heap as glibc's format has it.
"""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree


def total(root, kind):
    return [element for element in root if element.tag == "total" and element.get("type") == kind]


def number(element, name):
    return int(element.get(name))


def check(xml, info):
    root = ElementTree.fromstring(xml)
    assert root.tag == "malloc", root.tag
    assert list(root.iter("heap")), "no heap in it"
    numbers = [value for element in root.iter() for name, value in element.attrib.items() if name in ("size", "count")]
    assert numbers and all(value.isdigit() for value in numbers), numbers
    # Each whole at the top is the sum over heaps.
    for kind in ("fast", "rest"):
        wholes = total(root, kind)
        parts = [part for heap in root.iter("heap") for part in total(heap, kind)]
        if wholes and parts:
            for name in ("count", "size"):
                summed = sum(number(part, name) for part in parts)
                assert number(wholes[0], name) == summed, (kind, name, number(wholes[0], name), summed)
    mmapped = total(root, "mmap")
    assert len(mmapped) == 1, "one total of type mmap"
    assert number(mmapped[0], "count") == info["large_count"], (mmapped[0].attrib, info)
    assert number(mmapped[0], "size") >= 3 * (5 << 20), mmapped[0].attrib
    # What the program freed is somewhere in fast (ready in bins) and rest (in slabs).
    free = sum(number(element, "size") for kind in ("fast", "rest") for element in total(root, kind))
    assert free > 0
    assert abs(free - info["free"]) <= max(65536, info["free"] // 10), (free, info)


def main():
    environment = dict(os.environ)
    if len(sys.argv) > 2:
        environment.update(LD_PRELOAD=sys.argv[2], TEST_EXPECT_HAKMEM="1")
    result = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True, env=environment)
    info = json.loads(result.stderr)
    check(result.stdout, info)
    # Positive control: the same text with one size changed, and cut short, is refused.
    for broken in (result.stdout.replace('type="mmap" count="', 'type="mmap" count="7', 1), result.stdout[:-5]):
        try:
            check(broken, info)
        except (AssertionError, ElementTree.ParseError):
            continue
        print("the control was not refused")
        return 1
    print("info_xml: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
