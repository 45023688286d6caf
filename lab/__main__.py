"""python3 -m lab [bench] ...: measure and compare; python3 -m lab peers ...: the allocators to compare with."""

import os
import sys

from lab import allocators, bench


def main(arguments):
    if arguments[:1] == ["peers"]:
        door = str(allocators.ROOT / "hak")
        os.execv(door, [door, *arguments])
    return bench.main(arguments[1:] if arguments[:1] == ["bench"] else arguments)


sys.exit(main(sys.argv[1:]))
