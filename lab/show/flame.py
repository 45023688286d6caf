"""A flame graph of a heap profile: SVG, or a page that needs nothing but itself, with zoom and search by a small script.

The outermost function is on top, what it calls below it; a box is as wide as its share of the bytes. Names are not
trusted: they are escaped, what XML or a reader cannot bear is left out, and long ones are cut.
"""

import zlib
from dataclasses import dataclass
from html import escape

from lab.judge.stacks import Node
from lab.show import page
from lab.show.profile import module, objects, plain, share, size

WIDTH = 1200.0
ROW = 18
LETTER = 7.0  # the width of a letter of the text in a box
LEAST = 3.0  # a narrower box is not drawn, nor what it calls
LEAST_ZOOMED = 0.3  # the same, where one can look closer
DEPTH_MAX = 200
TITLE_LENGTH_MAX = 1000
LABEL_LENGTH_MAX = 200
HUES = (8, 28, 45, 75, 140, 175, 205, 250, 285, 330)  # a file has one; light enough for black text


@dataclass
class Box:
    x: float
    width: float
    depth: int
    node: Node

    def label(self) -> str:
        """As much of the name as there is room for."""
        room = int((self.width - 6) / LETTER)
        return plain(self.node.frame.name, room) if room >= 3 else ""


def boxes(root: Node, least: float = LEAST) -> list[Box]:
    """In the order in which they are drawn: callers first."""
    found, left = [], [Box(0, WIDTH, 0, root)]
    scale = WIDTH / root.bytes if root.bytes else 0
    while left:
        box = left.pop()
        found.append(box)
        x = box.x
        for child in box.node.by_size() if box.depth < DEPTH_MAX else ():
            width = child.bytes * scale
            if width < least:
                break
            left.append(Box(x, width, box.depth + 1, child))
            x += width
    return found


def title(node: Node, whole: int) -> str:
    name = plain(node.frame.name, TITLE_LENGTH_MAX)
    where = f" [{module(node.frame)}]" if node.frame.file else ""
    return f"{name}{where}\n{size(node.bytes)}, {share(node.bytes, whole)}, {objects(node.objects)}"


def colour(node: Node) -> str:
    """Of the file, a little lighter or darker by the function."""
    frame = node.frame
    hue = HUES[zlib.crc32(frame.file.encode(errors="replace")) % len(HUES)]
    light = 72 + zlib.crc32(frame.name.encode(errors="replace")) % 12
    return f"hsl({hue},{70 if frame.file else 0}%,{light}%)"


def _box(box: Box, whole: int) -> str:
    y = box.depth * ROW
    label = escape(box.label())
    text = f'<text x="{box.x + 3:.2f}" y="{y + 13}">{label}</text>' if label else ""
    return (
        f'<g data-x="{box.x:.3f}" data-w="{box.width:.3f}" data-d="{box.depth}" '
        f'data-n="{escape(plain(box.node.frame.name, LABEL_LENGTH_MAX))}">'
        f"<title>{escape(title(box.node, whole))}</title>"
        f'<rect x="{box.x:.2f}" y="{y}" width="{max(box.width - 0.5, 0.2):.2f}" height="{ROW - 1}" '
        f'fill="{colour(box.node)}"/>{text}</g>'
    )


def svg(root: Node, name: str, least: float = LEAST) -> str:
    """The picture by itself. Without the white ground it would be black on what is dark."""
    drawn = boxes(root, least)
    height = (max(box.depth for box in drawn) + 1) * ROW
    inner = "\n".join(_box(box, root.bytes) for box in drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="flame" viewBox="0 0 {WIDTH:.0f} {height}" role="img" '
        f'data-letter="{LETTER}" '
        f'font-family="ui-monospace, \'DejaVu Sans Mono\', monospace" font-size="11.5" aria-label="{escape(plain(name))}">\n'
        f'<rect width="{WIDTH:.0f}" height="{height}" fill="#fff"/>\n{inner}\n</svg>\n'
    )


def hidden(root: Node, least: float = LEAST) -> str:
    """What is not drawn, in a sentence; "" if all is."""
    count, left = 0, [root]
    while left:
        node = left.pop()
        count += 1
        left += (child for child in node.children.values() if child.bytes > 0)
    missing = count - len(boxes(root, least))
    return f"{missing:,} of {count:,} boxes are too narrow to be drawn." if missing else ""


def html(root: Node, name: str, about: str, notes: list[str]) -> str:
    from markupsafe import Markup

    return page.environment(autoescape=True).get_template("flame.html.j2").render(
        name=plain(name), about=about, notes=[*notes, *filter(None, [hidden(root, LEAST_ZOOMED)])],
        svg=Markup(svg(root, name, LEAST_ZOOMED)), **page.within("flame.css", "flame.js"))  # fmt: skip
