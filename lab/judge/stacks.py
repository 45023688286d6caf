"""Sums over the stacks of a heap profile: by stack, by function, and as a tree. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Frame(NamedTuple):
    name: str
    file: str = ""  # the program or library; "" if it lies in none


class Weight(NamedTuple):
    bytes: int = 0
    objects: int = 0

    def plus(self, other: "Weight") -> "Weight":
        return Weight(self.bytes + other.bytes, self.objects + other.objects)


NOTHING = Weight()


@dataclass(frozen=True)
class Stack:
    frames: tuple[Frame, ...]  # the outermost first
    weight: Weight


@dataclass
class Function:
    frame: Frame
    own: Weight = NOTHING  # of stacks that end in it
    whole: Weight = NOTHING  # of stacks that go through it, each once


@dataclass
class Node:
    frame: Frame
    bytes: int = 0
    objects: int = 0
    children: dict[Frame, "Node"] = field(default_factory=dict)

    def add(self, weight: Weight) -> None:
        self.bytes += weight.bytes
        self.objects += weight.objects

    def by_size(self) -> list["Node"]:
        """Children with something in them, the largest first."""
        return sorted((child for child in self.children.values() if child.bytes > 0), key=lambda child: (
            -child.bytes, child.frame))  # fmt: skip


def merged(stacks: Iterable[Stack]) -> list[Stack]:
    """Stacks of the same names are one: they differ in addresses inside a function only. The largest first, none empty."""
    sums: dict[tuple[Frame, ...], Weight] = {}
    for stack in stacks:
        sums[stack.frames] = sums.get(stack.frames, NOTHING).plus(stack.weight)
    found = [Stack(frames, weight) for frames, weight in sums.items() if any(weight)]
    return sorted(found, key=lambda stack: (-stack.weight.bytes, -stack.weight.objects, stack.frames))


def functions(stacks: Iterable[Stack]) -> list[Function]:
    """By their own bytes, then by those of what they call; none empty."""
    found: dict[Frame, Function] = {}
    for stack in stacks:
        for frame in set(stack.frames):
            function = found.setdefault(frame, Function(frame))
            function.whole = function.whole.plus(stack.weight)
        if stack.frames:
            leaf = found[stack.frames[-1]]
            leaf.own = leaf.own.plus(stack.weight)
    kept = [function for function in found.values() if any(function.whole) or any(function.own)]
    return sorted(kept, key=lambda one: (-one.own.bytes, -one.whole.bytes, one.frame))


def total(stacks: Iterable[Stack]) -> Weight:
    made = NOTHING
    for stack in stacks:
        made = made.plus(stack.weight)
    return made


def tree(stacks: Iterable[Stack], name: str = "all") -> Node:
    """Stacks that gained nothing, or lost (in the difference of two profiles), are not in it."""
    root = Node(Frame(name))
    for stack in stacks:
        if stack.weight.bytes <= 0:
            continue
        at = root
        at.add(stack.weight)
        for frame in stack.frames:
            below = at.children.get(frame)
            if below is None:
                below = at.children[frame] = Node(frame)
            at = below
            at.add(stack.weight)
    return root
