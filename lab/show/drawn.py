"""The figures that documents show: plots of the stored rows as files of their own, in fixed colours on white."""

import pathlib
import re
from collections.abc import Mapping, Sequence

from lab.run.allocators import PEERS, SUBJECT
from lab.show import page, plots, scorecard
from lab.show.figures import Figures
from lab.show.tables import middle
from lab.store.rows import Row

FOLDER = pathlib.PurePath("docs", "figures")
STYLE = page.FOLDER / "style.css"
IDLE_S = {"rss_before_kb": 0.0, "rss_0_1s_kb": 0.1, "rss_1s_kb": 1.0, "rss_5s_kb": 5.0, "rss_10s_kb": 10.0}
LATENCY = "latency"


def palette(style: str) -> dict[str, str]:
    """The colours of the scorecard on white: the first definition of each."""
    found: dict[str, str] = {}
    for name, colour in re.findall(r"(--\w+): (#[0-9a-f]{6})", style):
        found.setdefault(name, colour)
    return found


def file_of(svg: str, colours: Mapping[str, str]) -> str:
    """An element of a page as a file: colours instead of variables, and the same text whatever was drawn before it."""
    svg = re.sub(r"var\((--\w+)\)", lambda found: colours[found[1]], svg).replace("currentColor", colours["--text"])
    svg = re.sub(r'(\bid="|href="#|url\(#)p\d+-', r"\1", svg)
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" font-family="sans-serif" '
    )
    return "\n".join(line.rstrip() for line in svg.replace("<svg ", head, 1).splitlines()) + "\n"


def idle(figures: Figures, drawn: page._Plots) -> str:
    """Resident memory of a program that frees most of its blocks and sleeps. Nothing if that was not measured."""
    found, marks, points = figures.outcomes.get("idle"), [], []
    for name in (SUBJECT, *PEERS):
        sizes = {seconds: middle(found and found.of(name), key) for key, seconds in IDLE_S.items()}
        if None not in sizes.values():
            marks.append(plots.Mark(name, drawn.place(name)))
            points.append([(seconds, kb / 1024) for seconds, kb in sizes.items()])
    title = "Resident memory of an idle program"
    return plots.over_time(marks, points, "RSS, MiB", title, "seconds idle") if marks else ""


def draw(rows: Sequence[Row]) -> dict[str, str]:
    """name of the file -> its text, of what was measured."""
    found, figures = scorecard.collect(rows), Figures(rows)
    drawn = page._Plots(found)
    made = {
        "rate": drawn.forest("rate_ratio", "best_peer", "is_rate_compared", "rate, hakmem / the fastest peer",
                             "Rates against the fastest peer of each workload"),
        "memory": drawn.forest("peak_ratio", "leanest_peer", "is_size_compared", "peak RSS, hakmem / the leanest peer",
                               "Peak RSS against the leanest peer of each workload"),
        "idle": idle(figures, drawn),
    }  # fmt: skip
    if found["sizes"]:
        made["sizes"] = drawn.sizes()
    for part in ("malloc", "free"):
        made[f"{LATENCY}-{part}"] = drawn.latency(LATENCY, part)
    colours = palette(STYLE.read_text(encoding="utf-8"))
    return {f"{name}.svg": file_of(svg, colours) for name, svg in made.items() if svg}
