"""Plots as inline SVG: text stays text, colours are the page's (CSS variables), marks know their allocator.

Matplotlib draws with colours that stand for something; they are replaced by what the page defines: --a0, --a1, ... of
the allocators, --grid, and currentColor for text. Every mark of an allocator carries data-a, so a filter can hide it.
"""

import functools
import html
import io
import itertools
import logging
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# CSS pixels are points here: a plot is shown at about this size, on a phone a little smaller.
WIDTH = 340
TEXT, GRID, PAPER = "#a10001", "#a10002", "#a10003"
NAMED = {TEXT: "currentColor", GRID: "var(--grid)", PAPER: "var(--paper)"}
COLOURS = 10  # --a0 to --a9
MARKERS = "osD^vPX<>h"
LABEL_MAX = 17


def colour(index: int) -> str:
    return f"#a2{index % COLOURS:04x}"


def marker(index: int) -> str:
    """Where colours come again, the shape is another."""
    return MARKERS[(index + index // COLOURS) % len(MARKERS)]


def label(text: str) -> str:
    """Short enough for an axis; the tables have it whole."""
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return text if len(text) <= LABEL_MAX else text[: LABEL_MAX - 1] + "…"


@functools.cache
def _pyplot():
    import matplotlib

    matplotlib.use("svg")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # a font without a letter of a name
    matplotlib.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "hak", "text.parse_math": False, "font.size": 10, "font.family": "sans-serif",
        "text.color": TEXT, "axes.labelcolor": TEXT, "xtick.color": TEXT, "ytick.color": TEXT, "axes.edgecolor": GRID,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": GRID,
        "grid.linewidth": 0.7, "axes.axisbelow": True, "xtick.labelsize": 9, "ytick.labelsize": 9,
        "axes.formatter.use_mathtext": False, "axes.unicode_minus": False, "lines.linewidth": 1.6,
        "legend.frameon": False, "path.simplify": True,
    })  # fmt: skip
    return matplotlib


def _axes(height: float, left: float = 0.24, bottom: float = 34, top: float = 6, right: float = 0.97):
    _pyplot()
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, height / 72))
    FigureCanvasSVG(figure)
    figure.patch.set_alpha(0)
    axes = figure.add_axes([left, bottom / height, right - left, (height - bottom - top) / height])
    axes.patch.set_alpha(0)
    axes.tick_params(length=0)
    return figure, axes


def _axes_with_legend(height: float, count: int, left: float, right: float = 0.97):
    """Axes below a legend of so many names."""
    legend = 16 * ((count + 2) // 3)
    return _axes(height + legend, left=left, top=10 + legend, right=right)


_serial = itertools.count(1)


def _svg(figure, title: str) -> str:
    """The figure as an element of a page: no header, no reference out of it, ids of its own."""
    file = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'id="allocator(\d+)(?:_\d+)?"', r'data-a="\1"', text)
    prefix = f"p{next(_serial)}-"
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}", text)
    text = re.sub(r"#a2(000\d)", lambda found: f"var(--a{int(found[1], 16)})", text)
    for sign, name in NAMED.items():
        text = text.replace(sign, name)
    text = re.sub(r"(?<=[ \"LMCQ(-])(\d+\.\d)\d+", r"\1", text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)
    head = f'<svg role="img" aria-label="{html.escape(title)}" viewBox="0 0 {WIDTH} {figure.get_figheight() * 72:.0f}"'
    return re.sub(r"<svg\b[^>]*>", lambda _: head + ">", text, count=1)


@dataclass(frozen=True)
class Mark:
    """One allocator in a plot. index: of its colour and its filter."""

    name: str
    index: int
    values: Sequence[float] = ()
    middle: float = math.nan
    low: float = math.nan
    high: float = math.nan


def strip(marks: Sequence[Mark], unit: str, title: str) -> str:
    """Every run a dot, the first run on top; the bar is the median, the box its interval. One row an allocator."""
    height = 40 + 30 * len(marks)
    figure, axes = _axes(height)
    for place, mark in enumerate(marks):
        tint, n = colour(mark.index), len(mark.values)
        offsets = [0.0] if n == 1 else [0.28 - 0.56 * run / (n - 1) for run in range(n)]
        if math.isfinite(mark.low) and math.isfinite(mark.high):
            box = axes.barh(-place, mark.high - mark.low, 0.74, mark.low, color=tint, alpha=0.22, linewidth=0)
            box[0].set_gid(f"allocator{mark.index}")
        axes.plot([mark.middle] * 2, [-place - 0.37, -place + 0.37], color=tint, linewidth=2.2,
                  gid=f"allocator{mark.index}")  # fmt: skip
        axes.plot(mark.values, [-place + offset for offset in offsets], marker(mark.index), color=tint, markersize=4,
                  markeredgewidth=0, alpha=0.85, gid=f"allocator{mark.index}")  # fmt: skip
    axes.set_yticks([-place for place in range(len(marks))], [label(mark.name) for mark in marks])
    axes.set_ylim(-len(marks) + 0.45, 0.55)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.06)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(unit)
    return _svg(figure, title)


def forest(marks: Sequence[tuple[str, Mark]], xlabel: str, title: str) -> str:
    """A row a workload, a dot and its interval a ratio, on a logarithmic axis with a line at 1."""
    height = 60 + 17 * len(marks)
    figure, axes = _axes(height, left=0.32, top=24)
    axes.tick_params(labeltop=True)
    axes.set_xscale("log")
    axes.axvline(1, color=TEXT, linewidth=1)
    seen = [value for _, dot in marks for value in (dot.middle, dot.low, dot.high) if 0 < value < math.inf]
    for index in sorted({dot.index for _, dot in marks}):
        dots = [(-place, dot) for place, (_, dot) in enumerate(marks) if dot.index == index]
        known = [(y, dot) for y, dot in dots if math.isfinite(dot.low) and math.isfinite(dot.high)]
        tint, gid = colour(index), f"allocator{index}"
        axes.hlines([y for y, _ in known], [dot.low for _, dot in known], [dot.high for _, dot in known], colors=tint,
                    alpha=0.55, linewidth=2.2, gid=gid)  # fmt: skip
        for some, face in ((known, tint), ([pair for pair in dots if pair not in known], "none")):
            axes.plot([dot.middle for _, dot in some], [y for y, _ in some], marker(index), color=tint, markersize=5,
                      markerfacecolor=face, gid=gid)  # fmt: skip
    axes.set_yticks([-place for place in range(len(marks))], [label(name) for name, _ in marks])
    axes.set_ylim(-len(marks) + 0.3, 0.7)
    _ratio_axis(axes, "x", seen or [1.0])
    axes.set_xlabel(xlabel)
    return _svg(figure, title)


def _ratio_axis(axes, which: str, values: Iterable[float]) -> None:
    """Ticks at plain numbers of a logarithmic axis that holds these values and 1."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    low, high = min([*values, 0.9]) / 1.06, max([*values, 1.1]) * 1.06
    every = [base * 10.0**power for power in range(-3, 6) for base in (1, 2, 5)]
    extra = (0.7, 0.8, 0.9, 1.1, 1.2, 1.5, 3) if high / low < 4 else (0.7, 1.5, 3) if high / low < 12 else ()
    ticks = sorted({tick for tick in [*every, *extra] if low <= tick <= high})
    if high / low > 300:
        ticks = [tick for tick in ticks if math.log10(tick).is_integer()]
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def lines(marks: Sequence[Mark], xs: Sequence[float], names: Sequence[str], ylabel: str, title: str) -> str:
    """A line an allocator over a few named places on a logarithmic axis, with bars of the intervals in .values:
    (middle, low, high) of each place, or None."""
    from matplotlib.ticker import FixedLocator, NullLocator

    figure, axes = _axes_with_legend(230, len(marks), 0.13)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    seen = []
    for mark in marks:
        points = [(x, *value) for x, value in zip(xs, mark.values, strict=True) if value]
        seen += [value for _, *values in points for value in values if 0 < value < math.inf]
        gid = f"allocator{mark.index}"
        axes.plot([point[0] for point in points], [point[1] for point in points], "-" + marker(mark.index),
                  color=colour(mark.index), markersize=4.5, label=label(mark.name), gid=gid,
                  zorder=3 - mark.index / 100)  # fmt: skip
        for x, _, low, high in points:
            if math.isfinite(low) and math.isfinite(high):
                axes.plot([x, x], [low, high], color=colour(mark.index), alpha=0.5, linewidth=3, gid=gid)
    axes.axhline(1, color=TEXT, linewidth=1)
    axes.xaxis.set_major_locator(FixedLocator(list(xs)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(list(xs), list(names))
    _ratio_axis(axes, "y", seen or [1.0])
    axes.set_ylabel(ylabel)
    _legend(figure)
    return _svg(figure, title)


def _duration(ns: float) -> str:
    return f"{ns / 1e6:g} ms" if ns >= 1e6 else f"{ns / 1e3:g} µs" if ns >= 1e3 else f"{ns:g} ns"


def curves(marks: Sequence[Mark], points: Sequence[Sequence[tuple[float, float]]], ylabel: str, title: str) -> str:
    """Latency by percentile: x is the share of calls that take longer, so the tail has room."""
    from matplotlib.ticker import FixedLocator, NullLocator

    figure, axes = _axes_with_legend(250, len(marks), 0.2, right=0.92)
    axes.set_xscale("log")
    axes.set_yscale("log")
    smallest = 0.1
    for mark, values in zip(marks, points, strict=True):
        kept = [(1 - percent / 100, value) for percent, value in values if percent < 100 and value > 0]
        smallest = min([smallest, *(share for share, _ in kept)])
        axes.plot([share for share, _ in kept], [value for _, value in kept], "-" + marker(mark.index),
                  color=colour(mark.index), markersize=4, label=label(mark.name), gid=f"allocator{mark.index}")  # fmt: skip
    ticks = [10.0**-power for power in range(7) if 10.0**-power >= smallest * 0.9]
    names = {1: "0", 0.1: "90", 0.01: "99"} | {10.0**-power: "99." + "9" * (power - 2) for power in range(3, 8)}
    axes.set_xlim(1, smallest / 1.3)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.set_xticks(ticks, [names[tick] for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: _duration(value))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("percentile")
    axes.set_ylabel(ylabel)
    _legend(figure)
    return _svg(figure, title)


def over_time(marks: Sequence[Mark], points: Sequence[Sequence[tuple[float, float]]], ylabel: str, title: str,
              unit: str = "minutes") -> str:  # fmt: skip
    figure, axes = _axes_with_legend(210, len(marks), 0.14)
    for mark, values in zip(marks, points, strict=True):
        axes.plot([time for time, _ in values], [value for _, value in values], color=colour(mark.index),
                  label=label(mark.name), gid=f"allocator{mark.index}")  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.locator_params(nbins=5)
    axes.set_xlabel(unit)
    axes.set_ylabel(ylabel)
    _legend(figure)
    return _svg(figure, title)


def _legend(figure) -> None:
    figure.legend(loc="upper center", ncol=3, fontsize=9, handlelength=1.6, columnspacing=1.4, borderaxespad=0.1)
