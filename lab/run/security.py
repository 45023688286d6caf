"""What an allocator notices of the small programs of tests/misuse, of which each misuses the heap once."""

import dataclasses
import os
import re
from collections.abc import Mapping

from lab.run import process
from lab.run.allocators import PEERS, SECURE, SUBJECT, Allocator
from lab.run.workloads import ROWS

GROUP = "security"
MISUSE = "misuse"
PROGRAM = os.path.join("tests", "test-misuse-misuse")
ALLOCATORS = (SUBJECT, SECURE, *PEERS)
RUNS = 7
RATE_ROW = dataclasses.replace(ROWS["mixed"], variants=())  # what it costs
COUNTS = ("not_caught", "programs", "without_effect")
SAID = re.compile(r"^(\d+) of (\d+) not caught, (\d+) had no effect$", re.MULTILINE)
WORDS = (PROGRAM, "all", "--count")


def count(build: str, allocator: Allocator, links: process.Links, timeout: float,
          settings: Mapping[str, str]) -> tuple[dict[str, int], str]:  # fmt: skip
    """COUNTS, and ""; or {} and a sentence why they are not known."""
    if allocator.missing:
        return {}, allocator.missing
    words = [os.path.join(build, "bin", WORDS[0]), *WORDS[1:]]
    done = process.run(words, process.clean_environment(settings), process.variables(allocator, links), build_dir=build,
                       timeout=timeout)  # fmt: skip
    if done.problem:
        return {}, done.problem
    found = SAID.search(done.stdout.decode(errors="replace"))
    return (dict(zip(COUNTS, map(int, found.groups()), strict=True)), "") if found else ({}, "it said no counts")
