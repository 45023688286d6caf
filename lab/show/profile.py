"""What `hak profile` prints: the largest stacks and functions of a heap profile. Names are not trusted: what a terminal
would obey is left out, and long ones are cut."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lab.judge import stacks
from lab.judge.stacks import Frame, Stack, Weight
from lab.run.names import KINDS, Named, total
from lab.show import tables

NAME_LENGTH_MAX = 100
FRAMES_MAX = 10  # of a stack that is printed
OF_KIND = {"live": "live", "allocated": "allocated", "peak": "live at the peak"}


def plain(text: str, length: int = NAME_LENGTH_MAX) -> str:
    """On one line, printable, and no longer than that."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text[: length + 1])
    return text if len(text) <= length else text[: length - 1] + "…"


def size(count: int) -> str:
    for letter, shift in (("T", 40), ("G", 30), ("M", 20), ("K", 10)):
        if abs(count) >= 1 << shift:
            return f"{count / (1 << shift):,.1f} {letter}iB"
    return f"{count:,} B"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def objects(count: int) -> str:
    return f"{count:,} object{'' if count == 1 else 's'}"


def module(frame: Frame) -> str:
    return plain(frame.file.rpartition("/")[2], 40)


def summary(named: Named) -> str:
    """All that the profile is about, in a line."""
    parts = []
    for kind in KINDS:
        if named.has(kind):
            weight = total(named.profile, kind)
            parts.append(f"{size(weight.bytes)} {OF_KIND[kind]} ({objects(weight.objects)})")
    period = named.profile.period_bytes
    if period > 0:
        parts.append(f"a sample each {size(period)}")
    return ", ".join(parts)


def notes(named: Named) -> list[str]:
    period = named.profile.period_bytes
    if not named.profile.samples and period > 1:
        return [f"no allocation was sampled at an interval of {size(period)}: --kb 0 samples every one"]
    return [plain(f"addresses instead of names: {note}", 400) for note in named.notes]


def functions(found: list[Stack], kind: str, count: int) -> Table:
    rows = stacks.functions(found)
    whole = stacks.total(found).bytes
    made = tables.table(f"function ({OF_KIND[kind]})", "own bytes", "%", "with callees", "%", "own objects", "in")
    made.columns[-1].justify = "left"
    for row in rows[:count]:
        made.add_row(Text(plain(row.frame.name)), f"{row.own.bytes:,}", share(row.own.bytes, whole), f"{row.whole.bytes:,}",
                     share(row.whole.bytes, whole), f"{row.own.objects:,}", Text(module(row.frame)))  # fmt: skip
    if len(rows) > count:
        made.add_row(f"and {len(rows) - count:,} more")
    return made


def _stack(stack: Stack, whole: Weight) -> list[Text]:
    weight = stack.weight
    lines = [
        Text(f"{size(weight.bytes):>10}  {share(weight.bytes, whole.bytes):>7}  {objects(weight.objects)}", "bold")
    ]
    inner = stack.frames[::-1]
    for frame in inner[:FRAMES_MAX]:
        lines.append(Text(f"            {plain(frame.name)}" + (f"  [{module(frame)}]" if frame.file else "")))
    if len(inner) > FRAMES_MAX:
        lines.append(Text(f"            and {len(inner) - FRAMES_MAX} more, up to {plain(stack.frames[0].name)}"))
    return lines


def largest(found: list[Stack], kind: str, count: int) -> Group:
    rows = stacks.merged(found)
    whole = stacks.total(found)
    if not rows:
        return Group(Text(f"nothing is {OF_KIND[kind]}"))
    lines = [Text(f"the largest stacks of what is {OF_KIND[kind]}, {min(count, len(rows))} of {len(rows):,}")]
    for row in rows[:count]:
        lines += _stack(row, whole)
    return Group(*lines)
