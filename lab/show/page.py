"""The scorecard's two texts: one page for the browser that needs nothing but itself, and Markdown.

Names in rows are not trusted: jinja2 escapes them, plots escape theirs, and the page's policy (a meta element) lets no
script run but its own and loads nothing.
"""

import base64
import hashlib
import math
import pathlib
import re
from collections.abc import Mapping

from lab.judge import drift, stats
from lab.show import plots, tables

FOLDER = pathlib.Path(__file__).parent / "templates"
GOOD = {stats.SPEED.over, stats.SIZE.under, stats.COUNT.under, "met"}
BAD = {stats.SPEED.under, stats.SIZE.over, stats.COUNT.over, "missed", drift.GROWS}


def kind(verdict: str) -> str:
    """Which class of the style sheet a verdict has."""
    word = verdict.split(",")[0]
    return "good" if word in GOOD else "bad" if word in BAD else "even"


def sign(verdict: str) -> str:
    if verdict in (stats.TOO_FEW, drift.TOO_FEW):
        return "?"
    return {"good": "▲", "bad": "▼"}.get(kind(verdict), "–" if verdict == "not measured" else "=")


def digits(value: float) -> int:
    """Decimals that a ratio of this size is given with."""
    return 3 if value < 0.095 else 2 if value < 9.95 else 1 if value < 99.5 else 0


def ratio(found: Mapping | None) -> str:
    """1.05 (1.01-1.08); ? for the interval where there are too few runs for one."""
    if not found:
        return ""
    places = digits(found["median"])
    known = found["low"] is not None and found["high"] is not None
    spread = f"{found['low']:.{places}f}-{found['high']:.{places}f}" if known else "?"
    return f"{found['median']:.{places}f} ({spread})"


def mib(kb: float | None) -> str:
    return "" if kb is None else f"{kb / 1024:,.1f}"


def number(value: float | None, digits: int = 4) -> str:
    return "" if value is None else tables.number(value, digits)


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def nanoseconds(value: float | None) -> str:
    if value is None:
        return "too few"
    return f"{value / 1e6:.3g} ms" if value >= 1e6 else f"{value / 1e3:.3g} µs" if value >= 1e3 else f"{value:.0f} ns"


def goal_value(value: float | None, goal: Mapping) -> str:
    if value is None:
        return ""
    shown = f"{value:.{0 if goal['goal'] >= 100 or value.is_integer() and value >= 10 else 2}f}"
    shown = shown.replace("-", "") if float(shown) == 0 else shown
    return shown + (f" {goal['unit']}" if goal["unit"] else "")


def cell(text) -> str:
    """Text for a cell of a Markdown table: on one line, and no markup."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return re.sub(r"([\\`*_{}\[\]<>|~#!&$])", r"\\\1", text)


def code(text) -> str:
    """Text as code in a Markdown table, or escaped where it has what would end the code."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return cell(text) if re.search(r"[`|]", text) or not text.strip() else f"`{text}`"


def environment(autoescape: bool):
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=autoescape, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True,
    )  # fmt: skip
    made.filters.update(ratio=ratio, mib=mib, number=number, percent=percent, ns=nanoseconds, kind=kind, sign=sign,
                        rate=lambda value: "" if value is None else tables.rate(value), cell=cell, code=code)  # fmt: skip
    made.globals.update(goal_value=goal_value)
    return made


# --- plots --------------------------------------------------------------------------------------------


class _Plots:
    """The plots of a page; every name is drawn in the colour of its place in the order."""

    def __init__(self, found: Mapping):
        self.found = found
        self.places = {name: place for place, name in enumerate(found["order"])}

    def place(self, name: str) -> int:
        return self.places[name]

    def strip(self, work: Mapping) -> str:
        size, letter = tables.scale(work["allocators"][0]["rate"]["median"])
        marks = [
            plots.Mark(entry["name"], self.place(entry["name"]), [value / size for _, value in rate["runs"]],
                       rate["median"] / size, rate["low"] / size if entry["n"] > 1 else math.nan, rate["high"] / size)
            for entry in work["allocators"] if (rate := entry["rate"])
        ]  # fmt: skip
        return plots.strip(marks, f"{letter}/s".lstrip("/") if not letter else f"{letter} operations/s",
                           f"Rates of the runs of {work['name']}")  # fmt: skip

    def forest(self, key: str, peer: str, is_compared: str, xlabel: str, title: str) -> str:
        marks = []
        for work in self.found["workloads"]:
            if (found := work[key]) and work[is_compared]:
                ends = [math.nan if found[end] is None else found[end] for end in ("low", "high")]
                marks.append((work["name"], plots.Mark(work[peer], self.place(work[peer]), (), found["median"], *ends)))
        return plots.forest(marks, xlabel, title) if marks else ""

    def sizes(self) -> str:
        table = self.found["sizes"]
        names = [f"{size}" if size < 1024 else f"{size // 1024}K" for size in table["sizes"]]
        marks = []
        for name, row in table["of_glibc"].items():
            values = [found and (found["median"], *(math.nan if found[end] is None else found[end]
                                                    for end in ("low", "high"))) for found in row]  # fmt: skip
            marks.append(plots.Mark(name, self.place(name), values))
        return plots.lines(marks, table["sizes"], names, "rate, of glibc's", "Rates at fixed sizes, of glibc's")

    def _marks(self, entries) -> list[plots.Mark]:
        return [plots.Mark(entry["allocator"], self.place(entry["allocator"])) for entry in entries]

    def latency(self, work: str, part: str) -> str:
        entries = [entry for entry in self.found["latency"] if entry["work"] == work and entry[part]["curve"]]
        points = [entry[part]["curve"] for entry in entries]
        title = f"Latency of {part} by percentile, {work}"
        return plots.curves(self._marks(entries), points, part, title) if entries else ""

    def _over_time(self, entries, scales: tuple[float, float], *labels: str) -> str:
        entries = [entry for entry in entries if len(entry["curve"]) > 1]
        points = [[(time * scales[0], value * scales[1]) for time, value in entry["curve"]] for entry in entries]
        return plots.over_time(self._marks(entries), points, *labels) if entries else ""

    def soak(self, entries) -> str:
        """RSS of the processes of one kind of work over time."""
        return self._over_time(entries, (1 / 60, 1 / 1024), "RSS, MiB", "Resident memory over time")

    def traces(self, entries) -> str:
        """Fragmentation of one trace over time."""
        return self._over_time(entries, (100, 1), "heap / live bytes", "Fragmentation over a trace", "% of the trace")


def within(style: str, script: str) -> dict:
    """What a page has inside itself, of these files: its style, its script, and the hash by which its policy knows that."""
    from markupsafe import Markup

    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in (style, script)]
    digest = base64.b64encode(hashlib.sha256(texts[1].encode()).digest()).decode()
    return {"style": Markup(texts[0]), "script": Markup(texts[1]), "script_digest": digest}


def html(found: Mapping) -> str:
    from markupsafe import Markup

    made = environment(autoescape=True)
    drawn = _Plots(found)

    def trusted(draw):  # what plots make is markup, the names in it escaped
        return lambda *words: Markup(draw(*words))

    svg = {name: trusted(getattr(drawn, name)) for name in ("strip", "forest", "sizes", "latency", "soak", "traces")}
    return made.get_template("scorecard.html.j2").render(
        card=found, svg=svg, place=drawn.place, colours=plots.COLOURS, **within("style.css", "script.js"))  # fmt: skip


def markdown(found: Mapping) -> str:
    return environment(autoescape=False).get_template("scorecard.md.j2").render(card=found)
